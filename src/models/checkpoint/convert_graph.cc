#include "models/checkpoint/convert_graph.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "graph/ops/embedding.h"
#include "graph/ops/expert_linear.h"
#include "graph/ops/linear.h"
#include "graph/ops/moe_router.h"
#include "graph/ops/soft_cap.h"
#include "models/checkpoint/precision.h"
#include "tensor/dtype.h"

namespace redline {
namespace {

constexpr int64_t kPieceRows =
    64;  // rows that are converted at a time, and that parts of a file begin at a multiple of
// Rows per matrix, or per group of experts, whose change estimates that of all.
constexpr int64_t kSampledRows = 32;
// Incremented when the bytes made of a file change: part of the identity of cached weights.
constexpr uint64_t kConversionVersion = 1;

/// Rows of several matrices of one type and row length, converted to another type.
class RowConverter {
 public:
  RowConverter(DType from, DType to, int64_t cols) : from_(from), to_(to), cols_(cols) {}

  /// Appends a matrix. Returns its first row in the converted file.
  int64_t add(const WeightSource& source) {
    const int64_t first = (num_rows_ + kPieceRows - 1) / kPieceRows * kPieceRows;
    parts_.push_back({source, first});
    num_rows_ = first + source.view.shape[0];
    return first;
  }
  int64_t num_rows() const { return num_rows_; }

  void convert(int64_t begin, int64_t end, uint8_t* out) const {
    std::vector<float> values(static_cast<size_t>(cols_));
    const Part& part = part_of(begin);
    end = std::min(end, part.first + part.source.view.shape[0]);
    for (int64_t row = begin; row < end; ++row, out += row_bytes(to_, cols_)) {
      read(part, row - part.first, values.data());
      round_row(to_, values.data(), cols_, out);
    }
  }

  /// Releases the file's pages in memory that hold the stored rows of rows [begin, end). Weights that other values
  /// share are not released.
  void release(int64_t begin, int64_t end) const {
    for (auto part = parts_.begin() + (&part_of(begin) - parts_.data()); part != parts_.end() && part->first < end;
         ++part) {
      const WeightSource& s = part->source;
      if (s.is_shared || !s.file) continue;
      const int64_t at = static_cast<const uint8_t*>(s.view.data) - s.file->data();
      if (s.source_row) {
        s.file->release(at, s.view.bytes());
        continue;
      }
      const int64_t rows = s.view.shape[0], first = std::clamp<int64_t>(begin - part->first, 0, rows);
      const int64_t last = std::clamp<int64_t>(end - part->first, 0, rows), bytes = row_bytes(from_, cols_);
      s.file->release(at + first * bytes, (last - first) * bytes);
    }
  }

  /// Returns a hash that identifies the stored bytes and the conversion; 0: unknown.
  uint64_t identity() const {
    uint64_t hash = hash_word(kConversionVersion, static_cast<uint64_t>(to_));
    for (const Part& part : parts_) {
      const WeightSource& s = part.source;
      if (!s.file || s.file->identity() == 0) return 0;
      hash = hash_word(hash_word(hash, s.file->identity()), static_cast<uint64_t>(from_));
      hash = hash_word(hash, static_cast<uint64_t>(static_cast<const uint8_t*>(s.view.data) - s.file->data()));
      if (!s.source_row) continue;
      for (int64_t n = 0; n < s.view.shape[0]; ++n) hash = hash_word(hash, static_cast<uint64_t>(s.source_row(n)));
    }
    return hash;
  }

  /// Adds the squares of some rows' values, evenly spaced, and of the changes of these values, as those of all rows.
  void sample(double& squares, double& changes) const {
    std::vector<float> values(static_cast<size_t>(cols_)), changed(values.size());
    std::vector<uint8_t> row(static_cast<size_t>(row_bytes(to_, cols_)));
    int64_t total = 0;
    for (const Part& part : parts_) total += part.source.view.shape[0];
    const int64_t count = std::min(total, kSampledRows);
    double own_squares = 0, own_changes = 0;
    int64_t before = 0, taken = 0;  // rows of the parts before, and rows taken so far
    for (const Part& part : parts_) {
      const int64_t rows = part.source.view.shape[0];
      for (; taken < count && (2 * taken + 1) * total / (2 * count) < before + rows; ++taken) {
        read(part, (2 * taken + 1) * total / (2 * count) - before, values.data());
        if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) continue;
        round_row(to_, values.data(), cols_, row.data());
        unpack_row(to_, row.data(), changed.data(), cols_);
        for (size_t i = 0; i < values.size(); ++i) {
          const double change = double{changed[i]} - double{values[i]};
          own_squares += double{values[i]} * double{values[i]};
          own_changes += change * change;
        }
      }
      before += rows;
    }
    if (count == 0) return;
    squares += own_squares * static_cast<double>(total) / static_cast<double>(count);
    changes += own_changes * static_cast<double>(total) / static_cast<double>(count);
  }

  std::string path() const {
    const auto& file = parts_.front().source.file;
    return file ? file->path() : "";
  }

 private:
  struct Part {
    WeightSource source;
    int64_t first;  ///< row in the converted file
  };
  const Part& part_of(int64_t row) const {
    const auto after =
        std::upper_bound(parts_.begin(), parts_.end(), row, [](int64_t r, const Part& p) { return r < p.first; });
    return *std::prev(after);
  }
  void read(const Part& part, int64_t row, float* values) const {
    const WeightSource& s = part.source;
    s.need_rows(row, 1);
    const int64_t stored = s.source_row ? s.source_row(row) : row;
    unpack_row(from_, static_cast<const uint8_t*>(s.view.data) + stored * row_bytes(from_, cols_), values, cols_);
  }

  DType from_, to_;
  int64_t cols_, num_rows_ = 0;
  std::vector<Part> parts_;
};

/// The reason why a matrix keeps its type.
enum class Kept : uint8_t { kNo, kAlready, kNarrow, kRows, kRouter, kShared };

std::string reason_text(Kept kept, DType to, int64_t cols) {
  switch (kept) {
    case Kept::kAlready: return fmt::format("already {}", dtype_info(to).name);
    case Kept::kNarrow: return fmt::format("not wider than {}", dtype_info(to).name);
    case Kept::kRows:
      return fmt::format("rows of {} elements, not a multiple of {}", cols, dtype_info(to).block_elements);
    case Kept::kRouter: return "they choose or weigh experts";
    case Kept::kShared: return "other ops read them too";
    case Kept::kNo: break;
  }
  return "";
}

bool is_wider(DType from, DType to) {
  if (to == DType::kBF16) return from == DType::kF32 || from == DType::kF16;
  return dtype_info(from).is_float || (from == DType::kQ8_0 && to == DType::kW8A8);
}

bool is_expert(const Op& op) { return op.def == &kExpertGatedLinear || op.def == &kExpertLinear; }

/// Finds how the ops of a graph use its matrices.
class MatrixUses {
 public:
  explicit MatrixUses(const Graph& graph) : graph_(graph), logits_(graph.find_output(PortRole::kLogits)) {
    for (const Op& op : graph.ops) {
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const ValueId id = op.inputs[i];
        if (graph.value(id).kind != ValueKind::kWeight || graph.value(id).shape.size() != 2) continue;
        const bool is_product = (op.def == &kLinear && i == 1) || (is_expert(op) && i >= 3);
        if (!is_product && !(op.def == &kEmbedding && i == 0)) has_others_.insert(id);
      }
      if (op.def == &kMoeRouter) routes_.insert(op.inputs[0]);
      if (op.def == &kExpertSum && op.inputs.size() > 3) routes_.insert(op.inputs[3]);
      if (op.def == &kSoftCap && op.outputs[0] == logits_) capped_ = op.inputs[0];
    }
  }
  bool is_output(const Op& op) const { return logits_ >= 0 && (op.outputs[0] == logits_ || op.outputs[0] == capped_); }

  /// Returns why the matrix `id` of `op` is not converted to `to`.
  Kept kept(const Op& op, ValueId id, DType to) const {
    const TensorView& view = graph_.value(id).weight.view;
    if (view.dtype == to) return Kept::kAlready;
    if (!is_wider(view.dtype, to)) return Kept::kNarrow;
    if (routes_.contains(op.outputs[0])) return Kept::kRouter;
    if (has_others_.contains(id)) return Kept::kShared;
    return view.shape[1] % dtype_info(to).block_elements == 0 ? Kept::kNo : Kept::kRows;
  }

 private:
  const Graph& graph_;
  std::set<ValueId> has_others_;
  std::set<ValueId> routes_;  // logits of routers and gates of shared experts
  ValueId logits_, capped_ = -1;
};

/// Counts matrices by a text that describes them.
class Counts {
 public:
  void add(std::string text) {
    const auto at = std::find_if(rows_.begin(), rows_.end(), [&](const auto& row) { return row.first == text; });
    if (at == rows_.end()) rows_.emplace_back(std::move(text), 1);
    else ++at->second;
  }
  /// Returns "q8_0 x112 to w8a8" for "q8_0|to w8a8" that was added 112 times.
  std::vector<std::string> texts() const {
    std::vector<std::string> texts;
    for (const auto& [text, count] : rows_) {
      const size_t bar = text.find('|');
      texts.push_back(fmt::format("{} x{}{}", text.substr(0, bar), count, text.substr(bar + 1)));
    }
    return texts;
  }
  bool empty() const { return rows_.empty(); }

 private:
  std::vector<std::pair<std::string, int64_t>> rows_;
};

class GraphConverter {
 public:
  GraphConverter(Graph& graph, DType to) : graph_(graph), to_(to), uses_(graph) {}

  Result<WeightConversion> run(std::string_view asked) {
    for (const Op& op : graph_.ops) {
      if (op.def != &kLinear && !is_expert(op)) continue;
      const DType to = uses_.is_output(op) && to_ == DType::kW8A8 ? DType::kQ8_0 : to_;
      std::map<std::pair<DType, int64_t>, std::vector<ValueId>> groups;  // matrices by type and row length
      for (size_t i = 1; i < (is_expert(op) ? op.inputs.size() : 2); ++i) {
        const ValueId id = op.inputs[i];
        const ValueInfo& value = graph_.value(id);
        if (value.kind != ValueKind::kWeight || value.shape.size() != 2) continue;
        if (is_expert(op) && i + num_biases(op) >= op.inputs.size()) continue;
        if (seen_.insert(id).second && is_converted(op, id, to))
          groups[{value.dtype, value.weight.view.shape[1]}].push_back(id);
      }
      has_layers_ |= !groups.empty() && !uses_.is_output(op);
      for (const auto& [key, ids] : groups) REDLINE_TRY(convert(ids, key.first, to, key.second));
    }
    if (!has_layers_)
      return unsupported("dtype {}: no matrix of a layer can be converted: {}; dtype auto runs the model as it is",
                         asked, kept_.empty() ? "there is none" : fmt::format("{}", fmt::join(kept_.texts(), ", ")));
    WeightConversion result;
    result.type = dtype_info(to_).name;
    result.changed = changed_.texts();
    result.kept = kept_.texts();
    if (squares_ > 0) result.relative_error = std::sqrt(changes_ / squares_);
    return result;
  }

 private:
  static size_t num_biases(const Op& op) {
    if (!std::any_cast<const ExpertLinearAttrs&>(op.attrs).has_bias) return 0;
    return op.def == &kExpertGatedLinear ? 2 : 1;
  }

  /// Counts the matrix if it keeps its type.
  bool is_converted(const Op& op, ValueId id, DType to) {
    const TensorView& view = graph_.value(id).weight.view;
    const Kept why = uses_.kept(op, id, to);
    if (why == Kept::kNo) return true;
    has_layers_ |= view.dtype == to_ && !uses_.is_output(op);
    kept_.add(fmt::format("{}| ({})", dtype_info(view.dtype).name, reason_text(why, to, view.shape[1])));
    return false;
  }

  Status convert(const std::vector<ValueId>& ids, DType from, DType to, int64_t cols) {
    auto converter = std::make_shared<RowConverter>(from, to, cols);
    std::vector<int64_t> first;
    first.reserve(ids.size());
    for (const ValueId id : ids) first.push_back(converter->add(graph_.value(id).weight));
    converter->sample(squares_, changes_);
    const int64_t row = row_bytes(to, cols);
    MappedFile::Maker maker;
    maker.piece = kPieceRows * row;
    maker.fill = [converter, row](int64_t begin, int64_t end, uint8_t* out) {
      converter->convert(begin / row, end / row, out);
    };
    maker.release = [converter, row](int64_t begin, int64_t end) { converter->release(begin / row, end / row); };
    maker.identity = converter->identity();
    REDLINE_ASSIGN(const auto file,
                   MappedFile::make_lazily(converter->path(), converter->num_rows() * row, std::move(maker)));
    for (size_t i = 0; i < ids.size(); ++i) {
      ValueInfo& value = graph_.values[static_cast<size_t>(ids[i])];
      WeightSource& source = value.weight;
      source.view = {to, source.view.shape, file->data() + first[i] * row};
      source.file = file;
      source.source_row = {};  // the converted rows are in the order of the value
      source.is_shared = false;
      value.dtype = to;
      changed_.add(fmt::format("{}| to {}", dtype_info(from).name, dtype_info(to).name));
    }
    return {};
  }

  Graph& graph_;
  DType to_;
  MatrixUses uses_;
  std::set<ValueId> seen_;
  Counts changed_, kept_;
  bool has_layers_ = false;  // a matrix of a layer has the type, before or after the conversion
  double squares_ = 0, changes_ = 0;
};

/// Returns "q8 (w8a8 on this device)" for a type that depends on the device.
std::string precision_text(Precision precision, Precision asked) {
  if (precision == asked) return std::string(precision_name(asked));
  return fmt::format("{} ({} on this device)", precision_name(asked), precision_name(precision));
}

}  // namespace

Result<WeightConversion> convert_graph_matrices(Graph& graph, Precision precision, Precision asked) {
  REDLINE_CHECK(precision != Precision::kQ8);
  const std::optional<DType> quantized = quantized_type(precision);
  if (!quantized && precision != Precision::kBF16) return WeightConversion{};
  return GraphConverter(graph, quantized.value_or(DType::kBF16)).run(precision_text(precision, asked));
}

}  // namespace redline
