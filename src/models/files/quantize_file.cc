#include "models/files/quantize_file.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/quantize.h"
#include "models/files/checkpoint_to_gguf.h"

namespace redline {
namespace {

/// Number of elements that a worker converts at a time.
constexpr int64_t kTaskElements = int64_t{1} << 16;

bool is_plain_float(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

int64_t count_rows(const TensorView& view) { return view.shape.empty() ? 0 : view.num_elements() / view.shape.back(); }

/// Returns the sort key of llama.cpp's quantizer: tensors outside of layers first, then layers by number.
std::pair<int64_t, std::string_view> quantized_place_of(const std::string& name) {
  return {name.starts_with("blk.") ? std::atoll(name.c_str() + 4) : -1, name};
}

QuantizeFacts read_facts(const GgufWriter& writer) {
  QuantizeFacts facts;
  std::string architecture;
  if (const auto arch = writer.find("general.architecture"); arch && arch->as_string())
    architecture = *arch->as_string();
  facts.traits = find_quantize_traits(architecture);
  const auto number = [&](const char* key) -> int64_t {
    const auto value = writer.find(architecture + "." + key);
    if (!value) return 0;
    return (value->type == GgufType::kArray ? value->int_at(0) : value->as_int()).value_or(0);
  };
  facts.num_layers = number("block_count");
  facts.num_heads = number("attention.head_count");
  facts.num_kv_heads =
      writer.find(architecture + ".attention.head_count_kv") ? number("attention.head_count_kv") : facts.num_heads;
  facts.num_experts = number("expert_count");
  for (const GgufWriter::Tensor& tensor : writer.tensors()) {
    for (const char* part : {"attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"})
      facts.num_attention_values += tensor.name.find(part) != std::string::npos;
    facts.has_output |= tensor.name == "output.weight";
  }
  return facts;
}

/// Converts rows to another plain type.
Status convert_rows(const float* values, int64_t count, DType to, uint8_t* out) {
  round_row(to, values, count, out);
  if (to != DType::kF16) return {};
  constexpr uint16_t kInfinity = 0x7C00;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, out + 2 * i, 2);
    if ((half & kInfinity) == kInfinity && std::isfinite(values[i]))
      return invalid_argument("{} overflows f16; use bf16 or f32", values[i]);
  }
  return {};
}

}  // namespace

Result<ModelQuantizer> ModelQuantizer::open(const std::string& path, const QuantizeOptions& options) {
  ModelQuantizer q;
  // A path that is not a GGUF file is opened by the reader of checkpoints, which reports its errors.
  if (auto file = GgufFile::open(path); file.ok()) {
    REDLINE_TRY(file->require_readable());
    q.file_ = std::make_unique<GgufFile>(std::move(file).value());
    for (const auto& [key, value] : q.file_->metadata())
      if (key != "general.alignment" && !key.starts_with("split.")) q.writer_.set_value(key, value);
    for (const GgufTensor& tensor : q.file_->tensors()) q.writer_.add_tensor(tensor.name, tensor.view);
  } else {
    REDLINE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path));
    if (checkpoint.format == "gguf") return std::move(file).status();
    q.checkpoint_ = std::make_unique<Checkpoint>(std::move(checkpoint));
    GgufExport to_gguf;
    to_gguf.has_tokenizer = q.checkpoint_->tokenizer != nullptr;
    REDLINE_TRY(checkpoint_to_gguf(*q.checkpoint_, to_gguf, q.writer_));
  }
  q.inputs_ = q.writer_.tensors();
  REDLINE_TRY(q.plan(options).within(path));
  return q;
}

Status ModelQuantizer::plan(const QuantizeOptions& options) {
  QuantizeFacts facts = read_facts(writer_);
  facts.has_imatrix = options.imatrix != nullptr;
  const bool is_adapter = [&] {
    const auto type = writer_.find("general.type");
    return type && type->as_string() && *type->as_string() != "model";
  }();
  if (is_adapter || inputs_.empty())
    return unsupported("general.type is {}, and only models are quantized",
                       is_adapter ? writer_.find("general.type")->to_string() : "missing, there are no tensors");
  QuantizeRules rules(options.mix, facts);
  std::vector<size_t> order(inputs_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return quantized_place_of(inputs_[a].name) < quantized_place_of(inputs_[b].name);
  });
  tensors_.resize(inputs_.size());
  weights_.resize(inputs_.size());
  for (const size_t i : order) {
    const auto& [name, view, fill] = inputs_[i];
    Tensor& t = tensors_[i];
    t = {name, view.shape, view.dtype, view.dtype, view.bytes(), 0, false, false};
    const int64_t columns = view.shape.empty() ? 1 : view.shape.back();
    if (QuantizeRules::quantizes(name, view.shape.size()) && !(options.keep_output && name == "output.weight")) {
      const bool is_logits = name == "output.weight" || (name == "token_embd.weight" && !facts.has_output);
      const DType ruled = rules.type_of(name, view.shape.size());
      DType type = options.is_pure ? options.mix.type : ruled;
      for (const auto& [pattern, given] : options.types)
        if (std::regex_search(name, pattern)) type = given;
      if (is_logits && options.output) type = *options.output;
      if (name == "token_embd.weight" && options.embedding) type = *options.embedding;
      t.to = fallback_type(type, columns);
      t.is_fallback = t.to != type;
    }
    if (t.to != t.from) {
      if (!is_plain_float(t.from)) {
        if (!dtype_info(t.from).is_block)
          return unsupported("tensor {} is {}, not a type that is quantized", name, dtype_info(t.from).name);
        if (dtype_info(t.to).is_block && !options.requantizes)
          return unsupported(
              "tensor {} is {} already: quantizing it again to {} loses more than quantizing the original model; "
              "--allow-requantize does it",
              name, dtype_info(t.from).name, dtype_info(t.to).name);
      }
      if (options.imatrix && dtype_info(t.to).is_block) {
        if (const auto entry = options.imatrix->entries.find(name); entry != options.imatrix->entries.end()) {
          const int64_t rows = count_rows(view), in_matrix = view.shape.size() > 2 ? view.shape.end()[-2] : rows;
          const auto expected = static_cast<size_t>(columns * (rows / in_matrix));
          if (entry->second.sums.size() == expected) weights_[i] = entry->second.means();
          else if (name != "token_embd.weight")
            return invalid_argument("tensor {} has {} columns, the importance matrix {}: it is of another model", name,
                                    expected, entry->second.sums.size());
        }
      }
      t.has_weights = !weights_[i].empty();
      if (options.mix.name == "Q2_K_S" && t.to == DType::kQ2_K && !t.has_weights && name != "token_embd.weight")
        return invalid_argument("Q2_K_S needs an importance matrix (--imatrix), and there is none for tensor {}", name);
      writer_.replace_tensor(i, t.to, {});
    }
    t.to_bytes = writer_.tensors()[i].view.bytes();
  }
  writer_.set_u32("general.file_type", options.mix.file_type);
  writer_.set_u32("general.quantization_version", 2);  // of ggml's block formats
  if (const ImportanceMatrix* imatrix = options.imatrix) {
    writer_.set("quantize.imatrix.file", options.imatrix_file);
    if (!imatrix->datasets.empty()) writer_.set("quantize.imatrix.dataset", imatrix->datasets.front());
    writer_.set_u32("quantize.imatrix.entries_count", static_cast<uint32_t>(imatrix->entries.size()));
    if (imatrix->chunks > 0) writer_.set_u32("quantize.imatrix.chunks_count", static_cast<uint32_t>(imatrix->chunks));
  }
  return {};
}

int64_t ModelQuantizer::from_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors_) bytes += tensor.from_bytes;
  return bytes;
}

int64_t ModelQuantizer::elements() const {
  int64_t count = 0;
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].from != tensors_[i].to) count += inputs_[i].view.num_elements();
  return count;
}

std::vector<std::string> ModelQuantizer::sources() const {
  std::vector<std::string> paths;
  if (file_)
    for (const auto& file : file_->files()) paths.push_back(file->path());
  if (checkpoint_)
    for (const auto& [name, source] : checkpoint_->tensors)
      if (source.file) paths.push_back(source.file->path());
  return paths;
}

Status ModelQuantizer::fill(size_t index, int64_t begin, int64_t end, uint8_t* out) const {
  const TensorView& view = inputs_[index].view;
  const GgufWriter::FillRows& read = inputs_[index].fill;
  const DType to = tensors_[index].to;
  const int64_t columns = view.shape.back(), rows = count_rows(view);
  const int64_t in_matrix = view.shape.size() > 2 ? view.shape.end()[-2] : rows;
  const int64_t in_bytes = row_bytes(view.dtype, columns), out_bytes = row_bytes(to, columns);
  REDLINE_ASSIGN(const CpuKernels* kernels, cpu_kernels());
  const QuantizeFn quantize = kernels->quantize[static_cast<size_t>(to)];
  if (dtype_info(to).is_block && !quantize) return unsupported("matrices are not quantized to {}", dtype_info(to).name);

  // Converts rows of one matrix, because each matrix has separate importance weights.
  const auto convert = [&](int64_t from, int64_t past) -> Status {
    const auto* source = static_cast<const uint8_t*>(view.data) + (read ? 0 : from * in_bytes);
    std::vector<uint8_t> stored;
    if (read) {
      stored.resize(static_cast<size_t>((past - from) * in_bytes));
      REDLINE_TRY(read(from, past, stored.data()));
      source = stored.data();
    }
    DType type = view.dtype;
    std::vector<float> values;
    const int64_t count = (past - from) * columns;
    uint8_t* const target = out + (from - begin) * out_bytes;
    if (!quantize || !is_plain_float(type)) {
      values.resize(static_cast<size_t>(count));
      for (int64_t row = 0; row < past - from; ++row)
        unpack_row(type, source + row * in_bytes, values.data() + row * columns, columns);
      if (!quantize) return convert_rows(values.data(), count, to, target);
      source = reinterpret_cast<const uint8_t*>(values.data());
      type = DType::kF32;
    }
    const float* weights = weights_[index].empty() ? nullptr : weights_[index].data() + from / in_matrix * columns;
    if (quantize({type, source, weights, target, past - from, columns})) return {};
    return invalid_argument("an element of rows {} to {} is not finite", from, past - 1);
  };
  Status first;
  std::mutex mutex;
  team_->parallel_for(end - begin, std::max<int64_t>(1, kTaskElements / columns), [&](int64_t from, int64_t past) {
    Status status;
    for (int64_t row = begin + from; row < begin + past && status.ok();) {
      const int64_t next = std::min(begin + past, (row / in_matrix + 1) * in_matrix);
      status = convert(row, next);
      row = next;
    }
    if (status.ok()) return;
    const std::lock_guard lock(mutex);
    if (first.ok()) first = std::move(status);
  });
  REDLINE_TRY(first);
  if (file_ && end == rows) {
    const GgufTensor* tensor = file_->tensor(inputs_[index].name);
    file_->files()[static_cast<size_t>(tensor->part)]->release(tensor->file_offset, tensor->bytes);
  }
  if (!(*on_elements_)((end - begin) * columns)) return cancelled("interrupted");
  return {};
}

Status ModelQuantizer::write(const std::string& path, WorkerTeam& team,
                             const std::function<bool(int64_t)>& on_elements) {
  team_ = &team;
  on_elements_ = &on_elements;
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].from != tensors_[i].to)
      writer_.replace_tensor(i, tensors_[i].to,
                             [this, i](int64_t begin, int64_t end, uint8_t* out) { return fill(i, begin, end, out); });
  return writer_.write(path);
}

}  // namespace redline
