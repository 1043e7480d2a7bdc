#include "graph/adapters.h"

namespace redline {

bool is_adapted(std::span<const AdapterSegment> segments, const AdapterSite* site, const SymbolValues& sizes) {
  if (site == nullptr || segments.empty()) return false;
  bool found = false;
  for_adapted_rows(segments, *site, sizes, 0, site->rows.eval(sizes), [&](const AdaptedRows&) { found = true; });
  return found;
}

}  // namespace redline
