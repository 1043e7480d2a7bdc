// Rows of a registry in the order that they state.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace redline {

/// Sorts rows so that each follows the row whose name it gives as `after`; rows with the same `after` keep their order,
/// and rows without `after` come first. A row whose `after` is no row's name comes last, so that no row is lost.
template <class Row, class Name, class After>
std::vector<Row> order_after(const std::vector<Row>& rows, const Name& name_of, const After& after_of) {
  std::vector<Row> order;
  std::vector<bool> is_placed(rows.size(), false);
  const auto place = [&](const auto& self, std::string_view name) -> void {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (is_placed[i] || std::string_view(after_of(rows[i])) != name) continue;
      is_placed[i] = true;
      order.push_back(rows[i]);
      self(self, name_of(rows[i]));
    }
  };
  place(place, "");
  for (size_t i = 0; i < rows.size(); ++i)
    if (!is_placed[i]) order.push_back(rows[i]);
  return order;
}

}  // namespace redline
