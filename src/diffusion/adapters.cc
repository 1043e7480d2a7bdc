#include "diffusion/adapters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "formats/safetensors.h"
#include "models/checkpoint/lora_config.h"
#include "models/checkpoint/weight_examiner.h"
#include "models/image/image_registry.h"

namespace redline {
namespace {

/// Suffixes of tensor names, and the factor that each stands for.
struct Suffix {
  std::string_view text;
  enum Kind : uint8_t {
    kDown,
    kUp,
    kAlpha,
    // LyCORIS: LoHa is (w1a w1b) * (w2a w2b), element by element; LoKr is the Kronecker product of w1 and w2, each of
    // which may be a product of two matrices.
    kHada1A,
    kHada1B,
    kHada2A,
    kHada2B,
    kKron1,
    kKron1A,
    kKron1B,
    kKron2,
    kKron2A,
    kKron2B,
    kDiff,      ///< the whole difference of a weight
    kDiffBias,  ///< the difference of its bias
    kUpBias,    ///< added after the up matrix, and scaled with it
    // DoRA. kohya's programs and LyCORIS: of rows [out, 1] or of input channels [1, in]; PEFT: of rows.
    kDoraScale,
    kMagnitude,
    kNumKinds
  } kind;
};
constexpr Suffix kSuffixes[] = {
    {".lora_A.weight", Suffix::kDown},
    {".lora_B.weight", Suffix::kUp},
    {".lora_down.weight", Suffix::kDown},
    {".lora_up.weight", Suffix::kUp},
    {".lora.down.weight", Suffix::kDown},
    {".lora.up.weight", Suffix::kUp},
    {"_lora.down.weight", Suffix::kDown},
    {"_lora.up.weight", Suffix::kUp},
    {".lora_linear_layer.down.weight", Suffix::kDown},
    {".lora_linear_layer.up.weight", Suffix::kUp},
    {".alpha", Suffix::kAlpha},
    {".hada_w1_a", Suffix::kHada1A},
    {".hada_w1_b", Suffix::kHada1B},
    {".hada_w2_a", Suffix::kHada2A},
    {".hada_w2_b", Suffix::kHada2B},
    {".lokr_w1", Suffix::kKron1},
    {".lokr_w1_a", Suffix::kKron1A},
    {".lokr_w1_b", Suffix::kKron1B},
    {".lokr_w2", Suffix::kKron2},
    {".lokr_w2_a", Suffix::kKron2A},
    {".lokr_w2_b", Suffix::kKron2B},
    {".diff", Suffix::kDiff},
    {".diff_b", Suffix::kDiffBias},
    {".lora_B.bias", Suffix::kUpBias},
    {".lora_up.bias", Suffix::kUpBias},
    {".dora_scale", Suffix::kDoraScale},
    {".lora_magnitude_vector", Suffix::kMagnitude},
    {".lora_magnitude_vector.weight", Suffix::kMagnitude},
};
/// Suffixes of tensors that are more than low-rank factors, with the reason for messages.
constexpr std::pair<std::string_view, std::string_view> kRefusedTensors[] = {
    {".set_weight", "replaced weights are not supported"},
    {".w_norm", "trained norms are not supported"},
    {".b_norm", "trained norms are not supported"},
    {".lora_A.bias", "biases of the first factor are not supported"},
    {".lora_down.bias", "biases of the first factor are not supported"},
    {".lora_mid.weight", "the three factors of Tucker forms are not supported"},
    {".hada_t1", "the three factors of Tucker forms are not supported"},
    {".hada_t2", "the three factors of Tucker forms are not supported"},
    {".lokr_t2", "the three factors of Tucker forms are not supported"},
    {".oft_blocks", "OFT is not supported"},
    {".oft_diag", "OFT is not supported"},
};
/// Prefixes of the network's own names.
constexpr std::string_view kPrefixes[] = {"base_model.model.",
                                          "model.diffusion_model.",
                                          "diffusion_model.",
                                          "transformer.",
                                          "unet.",
                                          "lora_transformer_",
                                          "lora_unet_",
                                          "lycoris_"};

/// Prefixes of text encoders, by component. kohya's trainers number CLIP-L, CLIP-G and T5 even when some are missing.
constexpr std::pair<std::string_view, std::string_view> kEncoderPrefixes[] = {
    {"text_encoder.", "text_encoder"},
    {"text_encoder_2.", "text_encoder_2"},
    {"text_encoder_3.", "text_encoder_3"},
    {"lora_te_", "text_encoder"},
    {"lora_te1_", "text_encoder"},
    {"lora_te2_", "text_encoder_2"},
    {"lora_te3_", "text_encoder_3"},
    {"text_encoders.clip_l.transformer.", "text_encoder"},
    {"text_encoders.clip_g.transformer.", "text_encoder_2"},
    {"text_encoders.t5xxl.transformer.", "text_encoder_3"},
};
/// Prefixes of a component's members in the metadata that diffusers writes.
constexpr std::string_view kDenoiserMembers[] = {"transformer.", "unet."};
constexpr const char* kMetadataKey = "lora_adapter_metadata";

/// Prefix of CLIP's text model, in the files of some versions of transformers only.
constexpr std::string_view kTextModel[] = {"text_model.", "text_model_"};

std::string_view without_any(std::string_view name, std::span<const std::string_view> prefixes) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : prefixes)
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size()), again = true;
  }
  return name;
}

/// Removes the prefix and returns the component that it names; "" for the denoiser.
std::string_view take_component(std::string_view& name) {
  for (const auto& [prefix, component] : kEncoderPrefixes)
    if (name.starts_with(prefix)) {
      name = without_any(name.substr(prefix.size()), kTextModel);
      return component;
    }
  name = without_any(name, kPrefixes);
  return {};
}

/// "attn1.processor.to_out" in the oldest files of diffusers is "attn1.to_out.0".
std::string without_processor(std::string name) {
  constexpr std::string_view kProcessor = ".processor.";
  const size_t at = name.find(kProcessor);
  if (at == std::string::npos) return name;
  name.replace(at, kProcessor.size(), ".");
  return name.ends_with(".to_out") ? name + ".0" : name;
}

/// kohya's files replace the dots of a name by underscores.
std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

/// Names of diffusers and of original files, which may be row ranges of fused matrices; each also in kohya's spelling.
std::vector<AdapterName> names_of(const AdapterSite& site) {
  std::string own = site.weight;
  if (own.ends_with(".weight")) own.resize(own.size() - 7);
  own = without_any(own, kTextModel);
  std::vector<AdapterName> names = {{own}, {underscored(own)}};
  for (AdapterName& name : names) name.in_weight_order = true;
  const bool has_halves = site.out_features == 2 * site.in_features;
  for (const StoredModule& stored : find_stored_modules(own)) {
    const int64_t first = stored.first * site.out_features / stored.count;
    const bool swaps = stored.swaps_halves && has_halves;
    // The rows of such modules are in another order only in a checkpoint with the original names, and that order is the
    // one of the stored name.
    if (swaps && site.source_row) names[0].in_weight_order = names[1].in_weight_order = false;
    for (const std::string& name : {stored.name, underscored(stored.name)})
      names.push_back({name, first, true, swaps && !site.source_row});
  }
  return names;
}

/// "style" of ".lora_A.style.weight", which is removed: PEFT's name of an adapter among several.
std::string take_adapter_name(std::string& tensor) {
  for (const std::string_view factor : {".lora_A.", ".lora_B.", ".lora_magnitude_vector."})
    for (const std::string_view end : {".weight", ".bias"}) {
      const size_t at = tensor.rfind(factor), begin = at + factor.size();
      if (at == std::string::npos || !tensor.ends_with(end) || tensor.size() <= begin + end.size()) continue;
      std::string name = tensor.substr(begin, tensor.size() - begin - end.size());
      if (name.find('.') != std::string::npos) continue;
      tensor.erase(begin, name.size() + 1);
      return name;
    }
  return "";
}

/// XLabs' names of FLUX become the original ones: 1 is the image, 2 the text.
void rename_xlabs(std::string& tensor) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {".processor.qkv_lora1.", ".img_attn.qkv.lora."},
      {".processor.qkv_lora2.", ".txt_attn.qkv.lora."},
      {".processor.proj_lora1.", ".img_attn.proj.lora."},
      {".processor.proj_lora2.", ".txt_attn.proj.lora."},
      {".processor.qkv_lora.", ".qkv.lora."},
      {".processor.proj_lora.", ".linear2.lora."}};
  if (tensor.find("_blocks.") == std::string::npos) return;
  for (const auto& [xlabs, original] : kNames)
    if (const size_t at = tensor.find(xlabs); at != std::string::npos) {
      tensor.replace(at, xlabs.size(), original);
      return;
    }
}

/// The tensors of one module of a file.
struct ModuleTensors {
  std::array<TensorView, Suffix::kNumKinds> views;
  std::optional<double> alpha;

  bool has(Suffix::Kind kind) const { return views[kind].data != nullptr; }
  bool is_pair() const { return has(Suffix::kDown) || has(Suffix::kUp); }
  bool is_hada() const {
    return has(Suffix::kHada1A) || has(Suffix::kHada1B) || has(Suffix::kHada2A) || has(Suffix::kHada2B);
  }
  bool is_kron() const {
    return has(Suffix::kKron1) || has(Suffix::kKron1A) || has(Suffix::kKron2) || has(Suffix::kKron2A);
  }
};

/// A matrix in float32, [rows, all other axes]: kernels of a convolution are flattened.
struct PlainMatrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;

  float at(int64_t row, int64_t col) const { return values[static_cast<size_t>(row * cols + col)]; }
};

PlainMatrix plain_matrix(const TensorView& view) {
  PlainMatrix m;
  m.rows = view.shape[0];
  m.cols = m.rows == 0 ? 0 : view.num_elements() / m.rows;
  m.values.resize(static_cast<size_t>(view.num_elements()));
  unpack_row(view.dtype, view.data, m.values.data(), view.num_elements());
  return m;
}

PlainMatrix identity_matrix(int64_t size) {
  PlainMatrix m = {size, size, std::vector<float>(static_cast<size_t>(size * size))};
  for (int64_t i = 0; i < size; ++i) m.values[static_cast<size_t>(i * size + i)] = 1;
  return m;
}

/// Makes the pairs of modules. Messages begin with the module.
class PairMaker {
 public:
  explicit PairMaker(AdapterFile& adapter) : adapter_(adapter) {}

  /// Returns the factors, and the rank by which alpha is divided; 0: the factors are not scaled.
  Result<std::pair<AdapterMatrix, int64_t>> make(const std::string& module, const ModuleTensors& t) {
    if (t.is_pair() + t.is_hada() + t.is_kron() + t.has(Suffix::kDiff) > 1)
      return unsupported("{} has several forms of a difference at once", module);
    if (t.is_hada()) return make_hada(module, t);
    if (t.is_kron()) return make_kron(module, t);
    if (t.has(Suffix::kDiff)) return make_whole(module, t);
    if (!t.is_pair() && t.has(Suffix::kDiffBias)) return make_bias_alone(t);
    return make_pair(module, t);
  }

  /// Sets bias and magnitudes once the scale of the factors is known.
  static Status add_vectors(const std::string& module, const ModuleTensors& t, AdapterMatrix& matrix) {
    const auto rows = static_cast<size_t>(matrix.up.shape[0]);
    const auto values = [&](Suffix::Kind kind) { return vector_of(t.views[kind]); };
    for (const Suffix::Kind kind : {Suffix::kUpBias, Suffix::kDiffBias}) {
      if (!t.has(kind)) continue;
      const std::vector<float> given = values(kind);
      if (given.size() != rows)
        return invalid_argument("{}: a bias of {} elements, the weight has {} rows", module, given.size(), rows);
      const bool is_scaled = kind == Suffix::kUpBias;
      if (!is_scaled && matrix.scale == 0) return invalid_argument("{}: alpha is 0", module);
      matrix.bias.resize(rows);
      for (size_t i = 0; i < rows; ++i)
        matrix.bias[i] += is_scaled ? given[i] : static_cast<float>(static_cast<double>(given[i]) / matrix.scale);
    }
    if (t.has(Suffix::kMagnitude)) {
      matrix.magnitudes = values(Suffix::kMagnitude);
    } else if (t.has(Suffix::kDoraScale)) {
      matrix.magnitudes = values(Suffix::kDoraScale);
      const std::vector<int64_t>& shape = t.views[Suffix::kDoraScale].shape;
      matrix.has_column_magnitudes = shape.size() > 1 && shape[0] == 1 && shape[1] != 1;
      if (rows == 1) matrix.has_column_magnitudes = shape.size() > 1 && shape[1] != 1;
    }
    if (!matrix.magnitudes.empty() && matrix.down.data == nullptr)
      return invalid_argument("{} has magnitudes and no factors", module);
    return {};
  }

 private:
  using Made = Result<std::pair<AdapterMatrix, int64_t>>;

  static Made make_pair(const std::string& module, const ModuleTensors& t) {
    AdapterMatrix matrix;
    matrix.down = t.views[Suffix::kDown];
    matrix.up = t.views[Suffix::kUp];
    if (!matrix.down.data || !matrix.up.data) return invalid_argument("{} has only one of its two matrices", module);
    const int64_t rank = matrix.down.shape[0];
    if (rank < 1 || matrix.up.shape[1] != rank)
      return invalid_argument("{}: down is [{}], up is [{}]: the ranks differ", module,
                              fmt::join(matrix.down.shape, ", "), fmt::join(matrix.up.shape, ", "));
    return std::pair(std::move(matrix), rank);
  }

  /// A difference of the weight is its own product with an identity, on the smaller side. It has no alpha.
  Made make_whole(const std::string& module, const ModuleTensors& t) {
    const TensorView& view = t.views[Suffix::kDiff];
    if (view.shape.size() < 2) return unsupported("{}: differences of norms are not supported", module);
    PlainMatrix m = plain_matrix(view);
    const int64_t rank = std::min(m.rows, m.cols);
    REDLINE_TRY(expect_rank(module, rank));
    PlainMatrix one = identity_matrix(rank);
    const bool is_tall = m.cols <= m.rows;
    return std::pair(is_tall ? own(std::move(one), std::move(m)) : own(std::move(m), std::move(one)), int64_t{0});
  }

  static Made make_bias_alone(const ModuleTensors& t) {
    AdapterMatrix matrix;
    matrix.up.shape = {t.views[Suffix::kDiffBias].num_elements(), 0};
    return std::pair(std::move(matrix), int64_t{0});
  }

  static std::vector<float> vector_of(const TensorView& view) {
    std::vector<float> values(static_cast<size_t>(view.num_elements()));
    unpack_row(view.dtype, view.data, values.data(), view.num_elements());
    return values;
  }

  /// (A B) * (C D) element by element has the rank r * r: its factors are all products of a column of A with one of C,
  /// and of a row of B with one of D.
  Made make_hada(const std::string& module, const ModuleTensors& t) {
    for (const Suffix::Kind kind : {Suffix::kHada1A, Suffix::kHada1B, Suffix::kHada2A, Suffix::kHada2B})
      if (!t.has(kind)) return invalid_argument("{} does not have all four matrices of LoHa", module);
    const PlainMatrix a = plain_matrix(t.views[Suffix::kHada1A]), b = plain_matrix(t.views[Suffix::kHada1B]),
                      c = plain_matrix(t.views[Suffix::kHada2A]), d = plain_matrix(t.views[Suffix::kHada2B]);
    if (a.cols < 1 || a.cols != b.rows || c.cols < 1 || c.cols != d.rows || a.rows != c.rows || b.cols != d.cols)
      return invalid_argument("{}: LoHa of [{}, {}] [{}, {}] and [{}, {}] [{}, {}]: the shapes do not fit", module,
                              a.rows, a.cols, b.rows, b.cols, c.rows, c.cols, d.rows, d.cols);
    REDLINE_TRY(expect_rank(module, a.cols * c.cols));
    PlainMatrix up = {a.rows, a.cols * c.cols, {}}, down = {a.cols * c.cols, b.cols, {}};
    for (int64_t row = 0; row < a.rows; ++row)
      for (int64_t i = 0; i < a.cols; ++i)
        for (int64_t k = 0; k < c.cols; ++k) up.values.push_back(a.at(row, i) * c.at(row, k));
    for (int64_t i = 0; i < a.cols; ++i)
      for (int64_t k = 0; k < c.cols; ++k)
        for (int64_t col = 0; col < b.cols; ++col) down.values.push_back(b.at(i, col) * d.at(k, col));
    const int64_t rank = b.rows;
    return std::pair(own(std::move(down), std::move(up)), rank);
  }

  /// kron(A B, C D) = kron(A, C) kron(B, D). A whole matrix is its own product with an identity, on the smaller side.
  Made make_kron(const std::string& module, const ModuleTensors& t) {
    int64_t rank = 0;
    PlainMatrix factors[2][2];
    const Suffix::Kind kinds[2][3] = {{Suffix::kKron1, Suffix::kKron1A, Suffix::kKron1B},
                                      {Suffix::kKron2, Suffix::kKron2A, Suffix::kKron2B}};
    for (size_t i = 0; i < 2; ++i) {
      const auto& [whole, a, b] = kinds[i];
      if (t.has(whole)) {
        PlainMatrix m = plain_matrix(t.views[whole]);
        PlainMatrix one = identity_matrix(std::min(m.rows, m.cols));
        const bool is_tall = m.cols <= m.rows;
        factors[i][is_tall ? 0 : 1] = std::move(m);
        factors[i][is_tall ? 1 : 0] = std::move(one);
      } else if (t.has(a) && t.has(b)) {
        factors[i][0] = plain_matrix(t.views[a]);
        factors[i][1] = plain_matrix(t.views[b]);
        rank = factors[i][1].rows;
      } else {
        return invalid_argument("{} does not have both matrices of LoKr", module);
      }
      if (factors[i][0].cols < 1 || factors[i][0].cols != factors[i][1].rows)
        return invalid_argument("{}: LoKr of [{}, {}] and [{}, {}]: the shapes do not fit", module, factors[i][0].rows,
                                factors[i][0].cols, factors[i][1].rows, factors[i][1].cols);
    }
    REDLINE_TRY(expect_rank(module, factors[0][0].cols * factors[1][0].cols));
    const auto kron = [](const PlainMatrix& x, const PlainMatrix& y) {
      PlainMatrix m = {x.rows * y.rows, x.cols * y.cols, {}};
      m.values.reserve(static_cast<size_t>(m.rows * m.cols));
      for (int64_t row = 0; row < m.rows; ++row)
        for (int64_t i = 0; i < x.cols; ++i)
          for (int64_t k = 0; k < y.cols; ++k) m.values.push_back(x.at(row / y.rows, i) * y.at(row % y.rows, k));
      return m;
    };
    PlainMatrix up = kron(factors[0][0], factors[1][0]), down = kron(factors[0][1], factors[1][1]);
    return std::pair(own(std::move(down), std::move(up)), rank);
  }

  static Status expect_rank(const std::string& module, int64_t rank) {
    constexpr int64_t kMaxRank = 4096;  // ImageOptions::max_adapter_rank's limit
    if (rank <= kMaxRank) return {};
    return unsupported("{}: its factors have rank {}; Redline applies ranks up to {}", module, rank, kMaxRank);
  }

  AdapterMatrix own(PlainMatrix down, PlainMatrix up) {
    AdapterMatrix matrix;
    for (const auto& [plain, view] : {std::pair{&down, &matrix.down}, {&up, &matrix.up}}) {
      adapter_.computed.push_back(std::make_unique<std::vector<float>>(std::move(plain->values)));
      *view = {DType::kF32, {plain->rows, plain->cols}, adapter_.computed.back()->data()};
    }
    return matrix;
  }

  AdapterFile& adapter_;
};

/// Ranks and alphas of each network, by component, from the metadata that diffusers writes.
class AdapterMetadata {
 public:
  static Result<AdapterMetadata> read(const SafetensorsFiles& files) {
    AdapterMetadata metadata;
    REDLINE_ASSIGN(const std::string text, files.metadata(kMetadataKey));
    if (text.empty()) return metadata;
    REDLINE_ASSIGN(metadata.json_, parse_json_object(text, kMetadataKey));
    return metadata;
  }

  /// Returns the members of a component: {"r": 4, ...} for "unet.r"; nullptr if there is no such member.
  Result<const LoraConfig*> config_of(const std::string& component) {
    const auto known = configs_.find(component);
    if (known != configs_.end()) return known->second ? &*known->second : nullptr;
    Json members = Json::object();
    const auto take = [&](std::string_view prefix) {
      for (const auto& [key, value] : json_.items())
        if (key.starts_with(prefix)) members[key.substr(prefix.size())] = value;
    };
    if (component.empty()) {
      for (const std::string_view prefix : kDenoiserMembers) take(prefix);
    } else {
      take(component + ".");
    }
    std::optional<LoraConfig>& config = configs_[component];
    if (members.empty()) return nullptr;
    REDLINE_ASSIGN(config, LoraConfig::read(members).within(kMetadataKey));
    return &*config;
  }

 private:
  Json json_ = Json::object();
  std::map<std::string, std::optional<LoraConfig>> configs_;
};

/// Returns the view of a factor, if its shape is valid in a pair.
Result<TensorView> factor_view(const SafetensorsTensor& tensor, Suffix::Kind kind) {
  TensorView view = tensor.view;
  const std::string shape = fmt::format("{}", fmt::join(tensor.view.shape, ", "));
  if (kind >= Suffix::kDiff) return view;
  if (kind > Suffix::kAlpha) {
    if (view.shape.size() == 2 || (kind == Suffix::kKron2 && view.shape.size() == 4)) return view;
    return unsupported("{} is [{}]; a factor of LoHa and LoKr is a matrix", tensor.name, shape);
  }
  // A linear layer stored as a 1x1 convolution.
  if (view.shape.size() == 4 && view.shape[2] == 1 && view.shape[3] == 1) view.shape.resize(2);
  const bool is_kernel = kind == Suffix::kDown && view.shape.size() == 4 && view.shape[2] == view.shape[3];
  if (view.shape.size() == 2 || is_kernel) return view;
  return unsupported(
      "{} is [{}]; a pair is [rank, in] and [out, rank], of a convolution [rank, in, kernel, kernel] and [out, rank, "
      "1, "
      "1]",
      tensor.name, shape);
}

Status belongs_to_no_pair(const std::string& tensor) {
  for (const auto& [end, why] : kRefusedTensors)
    if (tensor.ends_with(end)) return unsupported("tensor {} belongs to no LoRA pair: {}", tensor, why);
  return unsupported(
      "tensor {} belongs to no LoRA pair (lora_A/lora_B, lora_down/lora_up, LoHa's hada_w, LoKr's lokr_w or .diff)",
      tensor);
}

using ModuleKey = std::pair<std::string, std::string>;  // component and module

/// Returns the tensors of a file by component and module.
Result<std::map<ModuleKey, ModuleTensors>> read_modules(const SafetensorsFiles& files) {
  std::map<ModuleKey, ModuleTensors> modules;
  std::string adapter_name;
  for (bool is_first = true; const SafetensorsTensor& tensor : files.tensors()) {
    std::string full = tensor.name;
    const std::string name = take_adapter_name(full);
    rename_xlabs(full);
    const auto* found = std::find_if(std::begin(kSuffixes), std::end(kSuffixes),
                                     [&](const Suffix& s) { return full.ends_with(s.text); });
    if (found == std::end(kSuffixes)) return belongs_to_no_pair(tensor.name);
    if (!tensor.view.data) return unsupported("tensor {} has type {}", tensor.name, tensor.type_name);
    if (const auto broken = find_not_finite(WeightSource{.view = tensor.view}))
      return invalid_argument("tensor {} {}", tensor.name, *broken);
    if (found->kind <= Suffix::kUp) {
      if (!is_first && name != adapter_name)
        return unsupported("it holds the adapters \"{}\" and \"{}\"; write each to a file of its own", adapter_name,
                           name);
      adapter_name = name;
      is_first = false;
    }
    std::string_view spelled = std::string_view(full).substr(0, full.size() - found->text.size());
    const std::string component(take_component(spelled));
    ModuleTensors& module = modules[{component, without_processor(std::string(spelled))}];
    if (found->kind == Suffix::kAlpha) {
      if (tensor.view.num_elements() != 1) return invalid_argument("{} is not a single number", tensor.name);
      float alpha = 0;
      unpack_row(tensor.view.dtype, tensor.view.data, &alpha, 1);
      module.alpha = static_cast<double>(alpha);
      continue;
    }
    TensorView& view = module.views[found->kind];
    if (view.data) return invalid_argument("two tensors are the same factor, one of them {}", tensor.name);
    REDLINE_ASSIGN(view, factor_view(tensor, found->kind));
  }
  return modules;
}

}  // namespace

Result<AdapterFile> AdapterFile::open(const std::string& path) {
  REDLINE_ASSIGN(const SafetensorsFiles files, SafetensorsFiles::open_file(path));
  AdapterFile adapter;
  adapter.file = files.files()[0];
  REDLINE_ASSIGN(const auto modules, read_modules(files).within(path));
  REDLINE_ASSIGN(AdapterMetadata metadata, AdapterMetadata::read(files).within(path));
  PairMaker maker(adapter);
  for (const auto& [key, tensors] : modules) {
    const auto& [component, module] = key;
    const bool is_alpha_alone =
        std::none_of(tensors.views.begin(), tensors.views.end(), [](const TensorView& v) { return v.data != nullptr; });
    if (is_alpha_alone) continue;
    REDLINE_ASSIGN(auto made, maker.make(module, tensors).within(path));
    auto& [matrix, rank] = made;
    REDLINE_ASSIGN(const LoraConfig* config, metadata.config_of(component).within(path));
    if (tensors.alpha) {
      if (rank > 0) matrix.scale = *tensors.alpha / static_cast<double>(rank);
    } else if (config && rank > 0 && rank == matrix.rank()) {
      // The patterns of a text encoder may name its text model.
      const std::string full = component.empty() ? module : fmt::format("{}{}", kTextModel[0], module);
      REDLINE_ASSIGN(matrix.scale, config->scale(full, rank, kMetadataKey).within(path));
    }
    REDLINE_TRY(PairMaker::add_vectors(module, tensors, matrix).within(path));
    adapter.max_rank = std::max(adapter.max_rank, matrix.applied_rank());
    adapter.networks[component][module] = std::move(matrix);
  }
  if (adapter.networks.empty()) return invalid_argument("{}: holds no LoRA pair", path);
  return adapter;
}

NetworkAdapters::NetworkAdapters(AdapterSites sites, std::span<const std::string> idle_modules)
    : AdapterBank(std::move(sites), names_of) {
  for (const std::string& module : idle_modules) {
    ignore(module);
    ignore(underscored(module));
    for (const StoredModule& stored : find_stored_modules(module)) {
      if (stored.count != 1 || stored.first != 0) continue;
      ignore(stored.name);
      ignore(underscored(stored.name));
    }
  }
}

Status NetworkAdapters::set(NamedWeights adapters) {
  REDLINE_ASSIGN(active_, select(adapters));
  ++version_;
  return {};
}

std::vector<AdapterSegment> NetworkAdapters::segments() const {
  if (active_.empty()) return {};
  return {{.unit = Symbol::kBatch, .row_begin = 0, .row_end = INT64_MAX, .adapters = active_}};
}

}  // namespace redline
