#include "models/image/flux_file.h"

#include <algorithm>
#include <charconv>

#include "formats/byte_reader.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "text/json_reader.h"

namespace redline {
namespace {

struct FluxTensor {
  WeightSource source;
  std::string type;  ///< name of the type, for messages
};
using FluxTensors = std::map<std::string, FluxTensor>;

struct FluxNames {
  std::string_view stored, diffusers;
};
// Modules that are not part of a fused matrix (below).
constexpr FluxNames kTop[] = {{"img_in", "x_embedder"},
                              {"txt_in", "context_embedder"},
                              {"time_in.in_layer", "time_text_embed.timestep_embedder.linear_1"},
                              {"time_in.out_layer", "time_text_embed.timestep_embedder.linear_2"},
                              {"vector_in.in_layer", "time_text_embed.text_embedder.linear_1"},
                              {"vector_in.out_layer", "time_text_embed.text_embedder.linear_2"},
                              {"guidance_in.in_layer", "time_text_embed.guidance_embedder.linear_1"},
                              {"guidance_in.out_layer", "time_text_embed.guidance_embedder.linear_2"},
                              {"final_layer.linear", "proj_out"}};
constexpr FluxNames kDouble[] = {{"img_mod.lin", "norm1.linear"},
                                 {"txt_mod.lin", "norm1_context.linear"},
                                 {"img_attn.norm.query_norm", "attn.norm_q"},
                                 {"img_attn.norm.key_norm", "attn.norm_k"},
                                 {"txt_attn.norm.query_norm", "attn.norm_added_q"},
                                 {"txt_attn.norm.key_norm", "attn.norm_added_k"},
                                 {"img_attn.proj", "attn.to_out.0"},
                                 {"txt_attn.proj", "attn.to_add_out"},
                                 {"img_mlp.0", "ff.net.0.proj"},
                                 {"img_mlp.2", "ff.net.2"},
                                 {"txt_mlp.0", "ff_context.net.0.proj"},
                                 {"txt_mlp.2", "ff_context.net.2"}};
constexpr FluxNames kSingle[] = {{"modulation.lin", "norm.linear"},
                                 {"norm.query_norm", "attn.norm_q"},
                                 {"norm.key_norm", "attn.norm_k"},
                                 {"linear2", "proj_out"}};

constexpr std::string_view kXlabsSingleQkv = "qkv";  // in single blocks: the three of linear1 (diffusion/adapters.cc)
constexpr FluxNames kLastModulation = {"final_layer.adaLN_modulation.1", "norm_out.linear"};

// A fused matrix: its modules in row order, each with its height as a multiple of the network's width.
struct FluxNameParts {
  std::string_view stored;
  std::vector<std::pair<std::string_view, int64_t>> parts;
};
const std::vector<FluxNameParts>& double_parts() {
  static const std::vector<FluxNameParts> kParts = {
      {"img_attn.qkv", {{"attn.to_q", 1}, {"attn.to_k", 1}, {"attn.to_v", 1}}},
      {"txt_attn.qkv", {{"attn.add_q_proj", 1}, {"attn.add_k_proj", 1}, {"attn.add_v_proj", 1}}}};
  return kParts;
}
const std::vector<FluxNameParts>& single_parts() {
  static const std::vector<FluxNameParts> kParts = {
      {"linear1", {{"attn.to_q", 1}, {"attn.to_k", 1}, {"attn.to_v", 1}, {"proj_mlp", 4}}}};
  return kParts;
}

template <class Rows>
std::string_view look_up(const Rows& rows, std::string_view stem) {
  for (const FluxNames& row : rows)
    if (row.stored == stem) return row.diffusers;
  return {};
}

constexpr std::string_view kDoubleBlocks = "double_blocks.", kSingleBlocks = "single_blocks.";
constexpr std::string_view kKeyTensor = "double_blocks.0.img_attn.norm.key_norm.scale";
constexpr std::string_view kDiffusersKeyTensor = "transformer_blocks.0.attn.norm_added_k.weight";
constexpr std::string_view kPrefixes[] = {"", "model.diffusion_model.", "diffusion_model.", "transformer."};

Result<FluxTensors> read_flux_tensors(const std::string& path, std::string& format) {
  FluxTensors tensors;
  if (path.ends_with(".gguf")) {
    format = "gguf";
    REDLINE_ASSIGN(const GgufFile file, GgufFile::open(path));
    for (const GgufTensor& tensor : file.tensors()) {
      WeightSource source;
      source.view = tensor.view;
      source.file = file.files()[static_cast<size_t>(tensor.part)];
      tensors[tensor.name] = {std::move(source), std::string(gguf_type_name(tensor.gguf_type))};
    }
    return tensors;
  }
  format = "safetensors";
  REDLINE_ASSIGN(const SafetensorsFiles files, SafetensorsFiles::open_file(path));
  for (const SafetensorsTensor& tensor : files.tensors()) {
    WeightSource source;
    source.view = tensor.view;
    source.file = files.files()[static_cast<size_t>(tensor.part)];
    tensors[tensor.name] = {std::move(source), tensor.type_name};
  }
  return tensors;
}

// Returns rows [begin, begin + rows) of a tensor, or elements of a vector.
Result<WeightSource> rows_of(const WeightSource& source, int64_t begin, int64_t rows) {
  WeightSource part = source;
  const bool is_vector = source.view.shape.size() == 1;
  const int64_t columns = is_vector ? 1 : source.view.shape.back();
  if (is_vector && dtype_info(source.view.dtype).is_block)
    return unsupported("a vector of type {} cannot be taken apart", dtype_info(source.view.dtype).name);
  part.view.shape[0] = rows;
  part.view.data = static_cast<const uint8_t*>(source.view.data) + begin * row_bytes(source.view.dtype, columns);
  return part;
}

class Renamer {
 public:
  Renamer(const std::string& path, Checkpoint& checkpoint) : path_(path), checkpoint_(checkpoint) {}

  Status rename(const FluxTensors& tensors) {
    const auto first = tensors.find("img_in.weight");
    if (first == tensors.end() || first->second.source.view.shape.size() != 2)
      return invalid_argument("{}: tensor img_in.weight is missing", path_);
    width_ = first->second.source.view.shape[0];
    for (const auto& [name, tensor] : tensors) REDLINE_TRY(take(name, tensor));
    return {};
  }

 private:
  Status take(const std::string& name, const FluxTensor& tensor) {
    if (!tensor.source.view.data)
      return unsupported("{}: tensor {} has type {}, which Redline does not read", path_, name, tensor.type);
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) return stranger(name);
    const std::string_view stem = std::string_view(name).substr(0, dot);
    std::string_view kind = std::string_view(name).substr(dot);
    if (kind == ".scale") kind = ".weight";  // norms have this suffix
    if (kind != ".weight" && kind != ".bias") return stranger(name);
    if (stem == kLastModulation.stored) return take_last_modulation(name, tensor, kind);
    if (const std::string_view top = look_up(kTop, stem); !top.empty())
      return add(fmt::format("{}{}", top, kind), tensor.source);
    for (const bool is_double : {true, false}) {
      const std::string_view blocks = is_double ? kDoubleBlocks : kSingleBlocks;
      if (!stem.starts_with(blocks)) continue;
      const std::string_view rest = stem.substr(blocks.size());
      const size_t end = rest.find('.');
      int64_t block = 0;
      if (end == std::string_view::npos ||
          std::from_chars(rest.data(), rest.data() + end, block).ptr != rest.data() + end || block < 0)
        return stranger(name);
      const std::string scope =
          fmt::format("{}.{}.", is_double ? "transformer_blocks" : "single_transformer_blocks", block);
      const std::string_view inner = rest.substr(end + 1);
      if (const std::string_view whole = is_double ? look_up(kDouble, inner) : look_up(kSingle, inner); !whole.empty())
        return add(fmt::format("{}{}{}", scope, whole, kind), tensor.source);
      for (const FluxNameParts& matrix : is_double ? double_parts() : single_parts())
        if (matrix.stored == inner) return take_parts(name, tensor, matrix, scope, kind);
    }
    return stranger(name);
  }

  Status take_parts(const std::string& name, const FluxTensor& tensor, const FluxNameParts& matrix,
                    const std::string& scope, std::string_view kind) {
    int64_t rows = 0, begin = 0;
    for (const auto& [part, times] : matrix.parts) rows += times * width_;
    REDLINE_TRY(expect_rows(name, tensor, rows));
    for (const auto& [part, times] : matrix.parts) {
      REDLINE_ASSIGN(WeightSource source, rows_of(tensor.source, begin, times * width_).within(name));
      REDLINE_TRY(add(fmt::format("{}{}{}", scope, part, kind), std::move(source)));
      begin += times * width_;
    }
    return {};
  }

  // The original stores shift, then scale; diffusers scale, then shift.
  Status take_last_modulation(const std::string& name, const FluxTensor& tensor, std::string_view kind) {
    REDLINE_TRY(expect_rows(name, tensor, 2 * width_));
    WeightSource source = tensor.source;
    source.source_row = [width = width_](int64_t row) { return row < width ? row + width : row - width; };
    return add(fmt::format("{}{}", kLastModulation.diffusers, kind), std::move(source));
  }

  Status expect_rows(const std::string& name, const FluxTensor& tensor, int64_t rows) const {
    const std::vector<int64_t>& shape = tensor.source.view.shape;
    if (!shape.empty() && shape.size() <= 2 && shape[0] == rows) return {};
    return invalid_argument("{}: tensor {} has {} rows, expected {} with an img_in of {}", path_, name,
                            shape.empty() ? 0 : shape[0], rows, width_);
  }
  Status add(std::string name, WeightSource source) {
    if (checkpoint_.tensors.emplace(name, std::move(source)).second) return {};
    return invalid_argument("{}: two tensors are {}", path_, name);
  }
  Status stranger(const std::string& name) const {
    return unsupported("{}: tensor {} is not part of a supported FLUX.1 transformer", path_, in_quotes(name));
  }

  const std::string& path_;
  Checkpoint& checkpoint_;
  int64_t width_ = 0;
};

// Returns the config, with diffusers' keys, that follows from the tensors' shapes.
Result<nlohmann::json> config_of_shapes(const Checkpoint& checkpoint) {
  const auto side = [&](const std::string& name, size_t axis) -> Result<int64_t> {
    const auto at = checkpoint.tensors.find(name);
    if (at == checkpoint.tensors.end()) return invalid_argument("{}: tensor {} is missing", checkpoint.path, name);
    const std::vector<int64_t>& shape = at->second.view.shape;
    if (axis >= shape.size() || shape[axis] < 1)
      return invalid_argument("{}: tensor {} has the shape [{}]", checkpoint.path, name, fmt::join(shape, ", "));
    return shape[axis];
  };
  REDLINE_ASSIGN(const int64_t width, side("x_embedder.weight", 0));
  REDLINE_ASSIGN(const int64_t in_channels, side("x_embedder.weight", 1));
  REDLINE_ASSIGN(const int64_t out_channels, side("proj_out.weight", 0));
  REDLINE_ASSIGN(const int64_t text_width, side("context_embedder.weight", 1));
  REDLINE_ASSIGN(const int64_t pooled_width, side("time_text_embed.text_embedder.linear_1.weight", 1));
  REDLINE_ASSIGN(const int64_t head_dim, side("transformer_blocks.0.attn.norm_k.weight", 0));
  if (width % head_dim != 0)
    return invalid_argument("{}: a width of {} is not a multiple of the head size {}", checkpoint.path, width,
                            head_dim);
  const auto count_blocks = [&](std::string_view blocks) {
    int64_t count = 0;
    while (checkpoint.tensors.count(fmt::format("{}.{}.attn.norm_k.weight", blocks, count))) ++count;
    return count;
  };
  return nlohmann::json{
      {"_class_name", "FluxTransformer2DModel"},
      {"patch_size", 1},
      {"in_channels", in_channels},
      {"out_channels", out_channels},
      {"num_layers", count_blocks("transformer_blocks")},
      {"num_single_layers", count_blocks("single_transformer_blocks")},
      {"attention_head_dim", head_dim},
      {"num_attention_heads", width / head_dim},
      {"joint_attention_dim", text_width},
      {"pooled_projection_dim", pooled_width},
      {"guidance_embeds", checkpoint.tensors.count("time_text_embed.guidance_embedder.linear_1.weight") > 0}};
}

// Adds axes_dims_rope, which does not follow from any shape.
Status add_axes(const std::string& path, nlohmann::json& config) {
  const size_t slash = path.rfind('/');
  const std::string beside = (slash == std::string::npos ? "" : path.substr(0, slash + 1)) + "config.json";
  auto text = read_text_file(beside);
  if (!text.ok() && text.status().code() != Code::not_found) return std::move(text).status();
  if (text.ok()) {
    REDLINE_ASSIGN(const Json given, parse_json_object(*text, beside));
    for (const auto& [key, value] : config.items()) {
      const auto at = given.find(key);
      if (at != given.end() && !at->is_null() && *at != value)
        return invalid_argument("{}: {} contradicts the tensors of {}", beside, key, path);
    }
    if (const auto axes = given.find("axes_dims_rope"); axes != given.end()) {
      config["axes_dims_rope"] = *axes;
      return {};
    }
  }
  constexpr int64_t kHeadDim = 128;
  if (config["attention_head_dim"] != kHeadDim)
    return unsupported(
        "{}: heads of {} elements; those of FLUX.1 have {}. Put the model's config.json, with "
        "axes_dims_rope, beside the file",
        path, config["attention_head_dim"].get<int64_t>(), kHeadDim);
  config["axes_dims_rope"] = {16, 56, 56};
  return {};
}

}  // namespace

Result<Checkpoint> open_flux_file(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path = path;
  REDLINE_ASSIGN(FluxTensors tensors, read_flux_tensors(path, checkpoint.format));
  bool has_diffusers_names = false;
  const auto* prefix = std::find_if(std::begin(kPrefixes), std::end(kPrefixes), [&](std::string_view candidate) {
    has_diffusers_names = tensors.contains(fmt::format("{}{}", candidate, kDiffusersKeyTensor));
    return has_diffusers_names || tensors.contains(fmt::format("{}{}", candidate, kKeyTensor));
  });
  if (prefix == std::end(kPrefixes))
    return unsupported("{}: not a FLUX.1 transformer: neither {} nor {} is among its {} tensors", path, kKeyTensor,
                       kDiffusersKeyTensor, tensors.size());
  FluxTensors own;
  for (auto& [name, tensor] : tensors)
    if (name.starts_with(*prefix)) own[name.substr(prefix->size())] = std::move(tensor);
  if (has_diffusers_names) {
    for (auto& [name, tensor] : own) {
      if (!tensor.source.view.data)
        return unsupported("{}: tensor {} has type {}, which Redline does not read", path, name, tensor.type);
      checkpoint.tensors.emplace(name, std::move(tensor.source));
    }
  } else {
    REDLINE_TRY(Renamer(path, checkpoint).rename(own));
  }
  REDLINE_ASSIGN(checkpoint.config, config_of_shapes(checkpoint));
  REDLINE_TRY(add_axes(path, checkpoint.config));
  checkpoint.generation = nlohmann::json::object();
  checkpoint.tokenizer_status = not_found("{}: a transformer has no tokenizer", path);
  return checkpoint;
}

std::vector<StoredModule> flux_stored_modules(const std::string& module) {
  constexpr std::string_view kDiffusersDouble = "transformer_blocks.", kDiffusersSingle = "single_transformer_blocks.";
  const bool single = module.starts_with(kDiffusersSingle);
  if (!single && !module.starts_with(kDiffusersDouble)) {
    if (module == kLastModulation.diffusers) return {{std::string(kLastModulation.stored), 0, 1, true}};
    for (const FluxNames& row : kTop)
      if (row.diffusers == module) return {{std::string(row.stored)}};
    return {};
  }
  const size_t number = (single ? kDiffusersSingle : kDiffusersDouble).size(), dot = module.find('.', number);
  if (dot == std::string::npos) return {};
  const std::string_view stem = std::string_view(module).substr(dot + 1);
  const std::string block =
      fmt::format("{}{}.", single ? kSingleBlocks : kDoubleBlocks, module.substr(number, dot - number));
  for (const FluxNames& row : single ? std::span<const FluxNames>(kSingle) : std::span<const FluxNames>(kDouble))
    if (row.diffusers == stem) return {{block + std::string(row.stored)}};
  for (const FluxNameParts& stored : single ? single_parts() : double_parts()) {
    int64_t first = 0;
    for (const auto& [part, count] : stored.parts) {
      if (part == stem) {
        std::vector<StoredModule> names = {{block + std::string(stored.stored), first, count}};
        // XLabs' adapters end before the rows of proj_mlp.
        if (single && count == 1) names.push_back({fmt::format("{}{}", block, kXlabsSingleQkv), first});
        return names;
      }
      first += count;
    }
  }
  return {};
}

}  // namespace redline
