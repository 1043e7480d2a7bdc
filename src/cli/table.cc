#include "cli/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace redline::cli {
namespace {

size_t characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// Returns a line of cells. `column(i)` gives the width of column i, and true if it is aligned to the right.
template <class Column>
std::string line_of(const std::vector<std::string>& cells, Column column) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto [width, is_right] = column(i);
    const size_t size = characters(cells[i]);
    const std::string padding(width > size ? width - size : 0, ' ');
    line += "  " + (is_right ? padding + cells[i] : cells[i] + padding);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], characters(row[i]));
    }
  std::string text;
  for (const auto& row : rows_) {
    if (std::all_of(row.begin(), row.end(), [](const std::string& cell) { return cell.empty(); })) continue;
    text += line_of(row, [&](size_t i) {
      return std::pair(widths[i], std::find(right_.begin(), right_.end(), i) != right_.end());
    });
  }
  return text;
}

std::string RowTable::header() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  return row(titles);
}

std::string RowTable::row(const std::vector<std::string>& cells) const {
  std::vector<std::string> shown;
  for (const std::string& cell : cells) shown.push_back(printable(cell));
  return line_of(shown, [&](size_t i) {
    return std::pair(std::max(columns_[i].width, characters(columns_[i].title)), columns_[i].is_right);
  });
}

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result;
}

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

std::string human_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", bytes, decimals, kUnits[unit]);
}

}  // namespace redline::cli
