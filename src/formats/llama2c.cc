#include "formats/llama2c.h"

#include "formats/byte_reader.h"

namespace redline {
namespace {

constexpr int64_t kHeaderBytes = 7 * sizeof(int32_t);
constexpr int64_t kMaxSize =
    int64_t{1} << 24;  // of any field; products of three stay below 2^63 after the file size check

/// One kind of weight; the file stores all its layers contiguously.
struct Section {
  std::string_view name;  ///< name of one layer's tensor after "blk.N."; "" for tables that Redline recomputes
  std::vector<int64_t> shape;
};

/// Total floats of all sections; nullopt on overflow.
std::optional<int64_t> count_floats(const std::vector<Section>& sections, int64_t copies) {
  int64_t total = 0;
  for (const Section& section : sections) {
    int64_t floats = copies;
    for (const int64_t size : section.shape) {
      if (__builtin_mul_overflow(floats, size, &floats)) return std::nullopt;
    }
    if (__builtin_add_overflow(total, floats, &total)) return std::nullopt;
  }
  return total;
}

}  // namespace

Result<Llama2cFile> Llama2cFile::from_file(std::shared_ptr<MappedFile> file) {
  const std::string& path = file->path();
  const std::string_view text = file->text();
  if (text.substr(0, 4) == "24ka")
    return unsupported(
        "{}: a llama2.c checkpoint of version 1 or later; Redline reads version 0: export it with "
        "--version 0",
        path);
  ByteReader in(path, text);
  int32_t field[7];
  static constexpr std::string_view kFields[7] = {"dim",        "hidden_dim", "n_layers", "n_heads",
                                                  "n_kv_heads", "vocab_size", "seq_len"};
  for (int i = 0; i < 7; ++i) {
    const uint64_t at = in.offset();
    REDLINE_TRY(in.read(field[i], kFields[i]));
    const int64_t size = i == 5 && field[i] < 0 ? -int64_t{field[i]} : field[i];
    if (size <= 0 || size > kMaxSize)
      return in.error_at(at, "{} is {}, expected 1 to {}: not a llama2.c checkpoint{}", kFields[i], field[i], kMaxSize,
                         looks_like(text.substr(0, 64), file->size()));
  }

  Llama2cFile model;
  model.hidden_size = field[0], model.intermediate_size = field[1], model.num_layers = field[2];
  model.num_heads = field[3], model.num_kv_heads = field[4], model.context_length = field[6];
  model.vocab_size = std::abs(int64_t{field[5]});
  model.tied = field[5] > 0;
  const int64_t dim = model.hidden_size, hidden = model.intermediate_size;
  if (dim % model.num_heads != 0 || (dim / model.num_heads) % 2 != 0)
    return in.error_at(0, "dim {} over {} heads: expected an even number for each head", dim, model.num_heads);
  if (model.num_heads % model.num_kv_heads != 0)
    return in.error_at(12, "{} heads over {} key-value heads: expected a multiple", model.num_heads,
                       model.num_kv_heads);

  const int64_t kv = model.head_dim() * model.num_kv_heads, angles = model.context_length * (model.head_dim() / 2);
  const std::vector<Section> head = {{"token_embd.weight", {model.vocab_size, dim}}};
  const std::vector<Section> layer = {
      {"attn_norm.weight", {dim}},        {"attn_q.weight", {dim, dim}},      {"attn_k.weight", {kv, dim}},
      {"attn_v.weight", {kv, dim}},       {"attn_output.weight", {dim, dim}}, {"ffn_norm.weight", {dim}},
      {"ffn_gate.weight", {hidden, dim}}, {"ffn_down.weight", {dim, hidden}}, {"ffn_up.weight", {hidden, dim}}};
  std::vector<Section> tail = {{"output_norm.weight", {dim}}, {"", {angles}}, {"", {angles}}};  // cosines and sines
  if (!model.tied) tail.push_back({"output.weight", {model.vocab_size, dim}});

  const auto head_floats = count_floats(head, 1), layer_floats = count_floats(layer, model.num_layers),
             tail_floats = count_floats(tail, 1);
  const int64_t have = (file->size() - kHeaderBytes) / int64_t{sizeof(float)};
  int64_t floats = 0, bytes = 0;
  if (!head_floats || !layer_floats || !tail_floats || __builtin_add_overflow(*head_floats, *layer_floats, &floats) ||
      __builtin_add_overflow(floats, *tail_floats, &floats) ||
      __builtin_mul_overflow(floats, int64_t{sizeof(float)}, &bytes) || bytes > INT64_MAX - kHeaderBytes)
    return in.error_at(0, "the sizes in its header overflow: not a llama2.c checkpoint");
  bytes += kHeaderBytes;
  if (bytes != file->size())
    return in.error_at(0, "{}the sizes in its header need {} bytes ({} weights), the file has {} ({} weights)",
                       file->size() < bytes ? "incomplete: " : "", bytes, floats, file->size(), have);
  ListBudget budget(static_cast<uint64_t>(file->size()));
  constexpr uint64_t kPerTensor = sizeof(std::pair<std::string, TensorView>) + 2 * 48;
  if (!budget.spend(static_cast<uint64_t>(model.num_layers), 9 * kPerTensor))
    return in.error_at(8, "{} layers are too many for a file of {} bytes", model.num_layers, file->size());

  model.tensors.reserve(head.size() + layer.size() * static_cast<size_t>(model.num_layers) + tail.size());
  const uint8_t* at = file->data() + kHeaderBytes;
  const auto take = [&](const Section& section) {
    TensorView view{DType::kF32, section.shape, at};
    at += view.bytes();
    return view;
  };
  model.tensors.emplace_back(head[0].name, take(head[0]));
  const size_t first = model.tensors.size();
  model.tensors.resize(first + layer.size() * static_cast<size_t>(model.num_layers));
  for (size_t s = 0; s < layer.size(); ++s) {
    for (int64_t i = 0; i < model.num_layers; ++i)
      model.tensors[first + static_cast<size_t>(i) * layer.size() + s] = {fmt::format("blk.{}.{}", i, layer[s].name),
                                                                          take(layer[s])};
  }
  for (const Section& section : tail) {
    TensorView view = take(section);
    if (!section.name.empty()) model.tensors.emplace_back(section.name, std::move(view));
  }
  model.file = std::move(file);
  return model;
}

Result<Llama2cFile> Llama2cFile::open(const std::string& path) {
  REDLINE_ASSIGN(auto file, MappedFile::open(path));
  return from_file(std::move(file));
}

}  // namespace redline
