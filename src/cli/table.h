// Tables for human-readable output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace redline::cli {

/// A table of cells, padded so that columns line up by characters (UTF-8). Columns named in `right` are aligned to the
/// right.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::vector<size_t> right = {})
      : right_(std::move(right)), rows_{std::move(header)} {}
  /// Adds a row, whose cells pass through printable().
  void add(std::vector<std::string> row);
  /// Returns the text. Each line is indented by two spaces, without trailing spaces. An empty header is omitted.
  std::string text() const;

 private:
  std::vector<size_t> right_;
  std::vector<std::vector<std::string>> rows_;
};

/// A table whose rows are printed one by one: its columns have minimum widths instead of the widths of their widest
/// cells.
class RowTable {
 public:
  struct Column {
    std::string title;
    size_t width;
    bool is_right = true;
  };
  explicit RowTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// Return lines in the format of Table.
  std::string header() const;
  std::string row(const std::vector<std::string>& cells) const;

 private:
  std::vector<Column> columns_;
};

/// Replaces control bytes by "
/// x0a", so that names from a file can neither break a line nor control the terminal.
std::string printable(std::string_view text);

/// Returns "1.5 GB", "312 kB", "17 bytes": three digits, powers of 1000.
std::string human_bytes(double bytes);

}  // namespace redline::cli
