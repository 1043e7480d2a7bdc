#include "lab/random/random_networks.h"

#include <fmt/ranges.h>

#include "base/text_distance.h"
#include "graph/hoist_invariants.h"
#include "lab/random/tensor_programs.h"
#include "models/files/random_model.h"
#include "models/image/image_registry.h"

namespace redline::lab {
namespace {

struct KnownNetwork {
  std::string_view name;
  std::string_view about;
  int64_t side;  ///< default side
  int64_t unit;  ///< sides are multiples of this
  Result<Graph> (*build)(const Checkpoint& checkpoint);
  void (*set_config)(nlohmann::json& config);
  int64_t batch, text_tokens;
  int64_t check_height, check_width;  ///< size of the check, in units
  std::set<std::string> constants;    ///< inputs that stay constant over the steps
};

Result<Graph> flux_body(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(const DenoiserRow* row, find_denoiser("FluxTransformer2DModel"));
  REDLINE_ASSIGN(DenoiserModel model, row->build(checkpoint, 0));
  return std::move(model.middle);
}

Result<Graph> unet(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(const DenoiserRow* row, find_denoiser("UNet2DConditionModel"));
  REDLINE_ASSIGN(DenoiserModel model, row->build(checkpoint, 0));
  return std::move(model.front);
}

Result<Graph> vae_decoder(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(const AutoencoderRow* row, find_autoencoder("AutoencoderKL"));
  REDLINE_ASSIGN(AutoencoderModel model, row->build(checkpoint));
  return std::move(model.decode);
}

void set_sd15(nlohmann::json& c) {
  c["block_out_channels"] = {320, 640, 1280, 1280};
  c["attention_head_dim"] = 8;
  c["cross_attention_dim"] = 768;
  const std::string plain = "DownBlock2D", up = "UpBlock2D", cross = "CrossAttn";
  c["down_block_types"] = {cross + plain, cross + plain, cross + plain, plain};
  c["up_block_types"] = {up, cross + up, cross + up, cross + up};
}

void set_flux_vae(nlohmann::json& c) {
  c["block_out_channels"] = {128, 256, 512, 512};
  c["layers_per_block"] = 2;
  c["latent_channels"] = 16;
  c["use_quant_conv"] = c["use_post_quant_conv"] = false;
}

const std::vector<KnownNetwork>& shapes() {
  // The sizes are those of the published config.json files.
  static const std::vector<KnownNetwork> kShapes = {
      {"flux-block",
       "one double block of FLUX.1",
       1024,
       16,
       flux_body,
       [](nlohmann::json& c) { c["num_layers"] = 1, c["num_single_layers"] = 0; },
       1,
       512,
       3,
       3,
       {"carry.conditioning"}},
      {"flux-single-block",
       "one single block of FLUX.1",
       1024,
       16,
       flux_body,
       [](nlohmann::json& c) { c["num_layers"] = 0, c["num_single_layers"] = 1; },
       1,
       512,
       3,
       3,
       {"carry.conditioning"}},
      {"sd15-unet",
       "the UNet of Stable Diffusion 1.5, both branches of guidance",
       512,
       8,
       unet,
       set_sd15,
       2,
       77,
       3,
       2,
       {"text", "timestep"}},
      {"flux-vae", "the decoder of FLUX.1's autoencoder", 1024, 8, vae_decoder, set_flux_vae, 1, 0, 3, 2, {}},
  };
  return kShapes;
}

const KnownNetwork* find_shape(std::string_view name) {
  for (const KnownNetwork& shape : shapes())
    if (shape.name == name) return &shape;
  return nullptr;
}

}  // namespace

std::string list_random_networks() {
  std::vector<std::string_view> names;
  for (const KnownNetwork& shape : shapes()) names.push_back(shape.name);
  for (const TensorProgram& program : tensor_programs()) names.push_back(program.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool is_random_network(const std::string& name) {
  const std::string_view network = std::string_view(name).substr(0, name.find(':'));
  return find_shape(network) != nullptr || find_tensor_program(network) != nullptr;
}

Status check_random_model(const std::string& name) {
  Status status = parse_random_model(name).status();
  std::string_view shape = name;
  if (is_random_model(shape)) shape.remove_prefix(kRandomPrefix.size());
  shape = shape.substr(0, shape.find(':'));
  const auto& shapes = random_shapes();
  if (status.ok() || std::any_of(shapes.begin(), shapes.end(), [&](const RandomShape& s) { return s.name == shape; }))
    return status;
  const std::string networks = list_random_networks();
  return invalid_argument("{}; networks: {}{}", status.message(), networks, the_nearest(shape, networks));
}

Result<RandomNetwork> make_random_network(const std::string& name, int64_t side) {
  const size_t colon = name.find(':');
  const KnownNetwork* shape = find_shape(name.substr(0, colon));
  const TensorProgram* program = find_tensor_program(name.substr(0, colon));
  if (!shape && !program)
    return invalid_argument("no random network \"{}\"{}; there are {}", name,
                            the_nearest(name.substr(0, colon), list_random_networks()), list_random_networks());
  RandomNetwork network;
  if (colon != std::string::npos) {
    REDLINE_ASSIGN(network.weights, dtype_from_name(name.substr(colon + 1)));
  }
  const DTypeInfo& type = dtype_info(network.weights);
  if (!type.is_float && !type.is_block)
    return invalid_argument("{} is not a type for weights; use bf16, q8_0, f32, ...", type.name);
  if (program) return make_tensor_program(*program, network.weights, side);
  network.name = shape->name;
  if (side == 0) side = shape->side;
  if (side < shape->unit || side > 8192 || side % shape->unit != 0)
    return invalid_argument("side {} is not a multiple of {} in [{}, 8192]", side, shape->unit, shape->unit);
  Checkpoint checkpoint;
  checkpoint.path = name;
  checkpoint.config = nlohmann::json::object();
  shape->set_config(checkpoint.config);
  checkpoint.make_tensor = [type = network.weights](const std::string& tensor, const std::vector<int64_t>& size) {
    return make_random_weight(tensor, size, type);
  };
  REDLINE_ASSIGN(network.graph, shape->build(checkpoint).within(name));
  const Grid grid = image_grid(3);  // the UNets halve their latents three times at most
  const auto sizes_of = [&](int64_t batch, int64_t text_tokens, int64_t height, int64_t width) {
    SymbolValues s;
    s[Symbol::kBatch] = batch;
    s[Symbol::kTextTokens] = text_tokens;
    s[Symbol::kImageTokens] = height / 16 * (width / 16);
    const int64_t latent[] = {height / 8, width / 8};
    grid.set(s, latent);
    return s;
  };
  network.sizes = sizes_of(shape->batch, shape->text_tokens, side, side);
  constexpr int64_t kCheckTokens = 5;
  const int64_t check_height = std::min(side, shape->check_height * shape->unit),
                check_width = std::min(side, shape->check_width * shape->unit);
  network.check_sizes = sizes_of(1, std::min(shape->text_tokens, kCheckTokens), check_height, check_width);
  if (!shape->constants.empty()) {
    Graph* const graphs[] = {&network.graph};
    REDLINE_ASSIGN(HoistedGraphs split,
                   hoist_invariants(graphs, {.name = "once", .constants = shape->constants, .sizes = network.sizes}));
    network.once = std::move(split.once);
  }
  network.check_about = fmt::format("{}x{}", check_width, check_height);
  network.about = fmt::format("{}, {}x{}, batch {}", shape->about, side, side, shape->batch);
  return network;
}

}  // namespace redline::lab
