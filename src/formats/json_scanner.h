// A streaming parser for untrusted JSON that builds no tree.
//
// Headers of safetensors files may have a hundred megabytes, and reading one must not use more memory than the file
// has. A general parser buffers growing strings twice and keeps a node per value; this one skips unused values in
// place, does not recurse, and allocates only the strings that the caller takes. Configs are parsed with nlohmann-json.
#pragma once

#include <string>

#include "formats/byte_reader.h"

namespace redline {

/// A cursor over the text. Every function starts at a value and leaves the cursor after it; errors state path, byte
/// offset and reason. Checks the grammar of RFC 8259, except that strings may contain any bytes above 0x1f.
class JsonScanner {
 public:
  /// `base`: file offset of text[0], for errors. `path` and `text` must outlive the scanner.
  JsonScanner(const std::string& path, std::string_view text, uint64_t base = 0)
      : path_(&path), text_(text), base_(base) {}

  /// Reads an object. on_member(key) must consume the value. Keys are unescaped, at most `max_key` bytes.
  template <class F>
  Status object(F&& on_member, size_t max_key = kMaxName) {
    REDLINE_TRY(expect('{'));
    if (accept('}')) return {};
    do {
      REDLINE_ASSIGN(const std::string key, string(max_key));
      REDLINE_TRY(expect(':'));
      REDLINE_TRY(on_member(key));
    } while (accept(','));
    return expect('}');
  }
  /// Reads an array. on_element() must consume the value.
  template <class F>
  Status array(F&& on_element) {
    REDLINE_TRY(expect('['));
    if (accept(']')) return {};
    do REDLINE_TRY(on_element());
    while (accept(','));
    return expect(']');
  }
  /// Reads a string of at most `max_bytes` bytes in the file.
  Result<std::string> string(size_t max_bytes = kMaxName);
  /// Reads an integer from 0 to 2^63 - 1 without fraction or exponent.
  Result<int64_t> natural();
  /// Skips any value, however large; arrays and objects nest at most kMaxDepth deep.
  Status skip();
  /// Checks that only white space is left.
  Status end();

  uint64_t offset() const { return base_ + at_; }
  template <class... A>
  Status error(fmt::format_string<A...> text, A&&... args) const {
    return invalid_argument("{}: at byte {}: {}", *path_, offset(), fmt::format(text, std::forward<A>(args)...));
  }

  static constexpr size_t kMaxName = 4096;
  static constexpr int kMaxDepth = 64;

 private:
  char peek();  ///< the next non-whitespace character; '\0' at the end
  bool accept(char c);
  Status expect(char c);
  Status skip_scalar();
  /// Finds the closing quote of the string at the cursor, validates its escapes and moves past it. `body`: the text
  /// between the quotes, still escaped.
  Status scan_string(std::string_view& body);
  Status skip_number();

  const std::string* path_;
  std::string_view text_;
  uint64_t base_;
  size_t at_ = 0;
};

}  // namespace redline
