// Python's pickle format (docs.python.org/3/library/pickletools.html) read as data: the value that the program would
// build, with calls represented but never executed. Nothing is imported.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

struct PickleValue {
  enum Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kTuple,
    kList,
    kDict,        ///< also collections.OrderedDict; items: key, value, key, value, ...
    kGlobal,      ///< a name that Python would import
    kCall,        ///< items: the callee, the tuple of arguments
    kPersistent,  ///< items: the id of an object stored elsewhere
  };
  Kind kind = kNone;
  int64_t number = 0;             ///< value of kBool and kInt
  double real = 0;                ///< value of kFloat
  std::string_view text, module;  ///< text of kText; module and name of kGlobal; both are views into the pickle
  std::vector<uint32_t> items;    ///< indices of values; may form a cycle
};

struct Pickle {
  static constexpr int64_t kMaxBytes = int64_t{16} << 20;
  static constexpr size_t kMaxValues = size_t{1} << 20;
  std::vector<PickleValue> values;
  uint32_t root = 0;

  const PickleValue& at(uint32_t i) const { return values[i]; }

  /// Reads a pickle. `path` names the file in errors and `offset` is the position of the pickle in it.
  /// invalid_argument: corrupt. unsupported: opcodes that dictionaries of tensors do not use, or more than kMaxBytes or
  /// kMaxValues.
  static Result<Pickle> read(const std::string& path, int64_t offset, std::string_view bytes);
};

}  // namespace redline
