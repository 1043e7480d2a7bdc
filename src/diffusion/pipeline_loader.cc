#include "diffusion/pipeline_loader.h"

#include "diffusion/base_weights.h"
#include "diffusion/calibration_file.h"
#include "diffusion/image_weights.h"
#include "diffusion/solver.h"

namespace redline {
namespace {

constexpr int64_t kDefaultSide = 512;

Status check_options(const ImageOptions& options) {
  if (options.max_side < 64 || options.max_side > 16384)
    return invalid_argument("max_side {} is outside [64, 16384]", options.max_side);
  if (options.max_adapter_rank < 0 || options.max_adapter_rank > 4096)
    return invalid_argument("max_adapter_rank {} is outside [0, 4096]", options.max_adapter_rank);
  if (options.max_batch < 1 || options.max_batch > 64)
    return invalid_argument("max_batch {} is outside [1, 64]", options.max_batch);
  if (options.vae_tile < -1 || (options.vae_tile > 0 && options.vae_tile < 64))
    return invalid_argument("vae_tile {}: tiles have at least 64 pixels", options.vae_tile);
  return {};
}

// Returns the side of a UNet's training size in latent pixels; 0: missing, or not a square.
int64_t square_sample_size(const nlohmann::json& config) {
  const auto size = config.find("sample_size");
  if (size == config.end() || !size->is_number_integer()) return 0;
  const auto side = size->get<int64_t>();
  return side >= 1 && side <= (int64_t{1} << 16) ? side : 0;
}

class PipelineLoader {
 public:
  PipelineLoader(const std::string& path, PipelineFiles files, Pipeline& pipeline)
      : path_(path), files_(std::move(files)), p_(pipeline) {}

  Status load() {
    REDLINE_TRY(open_runtime());
    REDLINE_TRY(open_text_encoders());
    REDLINE_ASSIGN(AutoencoderModel autoencoder, read_autoencoder());
    REDLINE_TRY(open_denoiser(autoencoder));
    REDLINE_TRY(open_vae(std::move(autoencoder)));
    add_adapter_banks();
    REDLINE_ASSIGN(p_.masks, find_calibration(path_, files_.defaults.step_cache, p_.options.step_cache_file));
    p_.scheduler_config = files_.scheduler_config;
    REDLINE_TRY(Solver::make(p_.scheduler_config).within(path_ + "/scheduler"));
    p_.prompt_words = files_.defaults.prompt_words;
    set_defaults();
    return {};
  }

 private:
  Status open_runtime() {
    const ImageOptions& options = p_.options;
    if (options.use_interpreter && !options.trace_file.empty())
      return invalid_argument("{}: the interpreter has no workers to record a timeline of", options.trace_file);
    REDLINE_ASSIGN(const DeviceChoice device, choose_engine_device(options.device, options.use_interpreter));
    REDLINE_ASSIGN(p_.runtime, choose_runtime(options.runtime, {options.threads, options.trace_file}));
    p_.options.dtype = resolve_precision(options.dtype, resources_of(*p_.runtime).kernels(), device);
    network_ = image_network_options(options.dtype, device);
    network_.interpret = options.use_interpreter;
    return {};
  }

  Status open_text_encoders() {
    SymbolValues& bounds = network_.bounds;
    bounds[Symbol::kBatch] = 1;
    bounds[Symbol::kTextTokens] = kMaxTextTokens;
    for (const PipelineComponent& component : files_.components) {
      constexpr std::string_view kPrefix = "text_encoder";
      if (!component.name.starts_with(kPrefix)) continue;
      REDLINE_ASSIGN(Checkpoint checkpoint, files_.open_component(component.name));
      REDLINE_TRY(convert_image_weights(checkpoint, text_encoder_precision(p_.options.dtype)));
      REDLINE_ASSIGN(const TextEncoderRow* row, find_text_encoder(component.class_name));
      REDLINE_ASSIGN(TextEncoderModel model, row->build(checkpoint).within(checkpoint.path));
      // tokenizer_2 belongs to text_encoder_2.
      const std::string tokenizer = "tokenizer" + component.name.substr(kPrefix.size());
      REDLINE_ASSIGN(const std::string tokenizer_folder, files_.tokenizer_folder(tokenizer));
      REDLINE_ASSIGN(PromptTokenizer prompts, PromptTokenizer::open(tokenizer_folder, model));
      std::unique_ptr<TextEncoder>& encoder = p_.text_encoders[component.name];
      REDLINE_ASSIGN(encoder, TextEncoder::make(component.name, std::move(model), std::move(prompts), network_,
                                                p_.options.max_adapter_rank, resources_of(*p_.runtime)));
      p_.prompt_encoders.add(component.name, *encoder);
      adapter_aliases_[component.name] = row->adapter_alias;
    }
    return {};
  }

  Result<AutoencoderModel> read_autoencoder() {
    const std::string& folder = p_.options.vae_folder;
    REDLINE_ASSIGN(Checkpoint vae, folder.empty() ? files_.open_component("vae") : Checkpoint::open(folder));
    REDLINE_TRY(convert_image_weights(vae, autoencoder_precision(p_.options.dtype)));
    const auto name = vae.config.find("_class_name");
    const bool is_named = name != vae.config.end() && name->is_string();
    REDLINE_ASSIGN(const AutoencoderRow* row,
                   find_autoencoder(is_named ? name->get<std::string>() : "").within(vae.path));
    return row->build(vae).within(vae.path);
  }

  Status open_denoiser(const AutoencoderModel& autoencoder) {
    const std::string_view component = p_.row->denoiser_component;
    REDLINE_ASSIGN(Checkpoint weights, files_.open_component(component));
    REDLINE_TRY(expect_denoiser_class());
    sample_size_ = square_sample_size(weights.config);
    REDLINE_TRY(convert_image_weights(weights, p_.options.dtype));
    REDLINE_ASSIGN(const DenoiserRow* row, find_denoiser(p_.row->denoiser_class));
    BlockSplit blocks(p_.options.front_blocks, p_.options.tail_blocks);
    blocks.modulated = true;  // each request chooses its own step cache
    REDLINE_ASSIGN(DenoiserModel model, row->build(weights, blocks).within(weights.path));
    if (p_.row->check) REDLINE_TRY(p_.row->check(model).within(weights.path));
    p_.family_name = model.family;
    const int64_t side = p_.options.max_side / autoencoder.scale;
    SymbolValues& bounds = network_.bounds;
    bounds[Symbol::kBatch] = p_.options.max_batch;
    const int64_t frames = autoencoder.latent_frames(max_frames(*p_.row));
    bounds[Symbol::kImageTokens] = frames * (side / model.patch) * (side / model.patch);
    set_extents(model.grid, {.height = side, .width = side, .frames = frames}, bounds);
    REDLINE_ASSIGN(p_.denoiser,
                   Denoiser::make(std::move(model), network_, p_.options.max_adapter_rank, resources_of(*p_.runtime))
                       .within(weights.path));
    return {};
  }

  Status expect_denoiser_class() const {
    const PipelineComponent* component = files_.find(p_.row->denoiser_component);
    if (is_same_component_class(component->class_name, p_.row->denoiser_class)) return {};
    return invalid_argument("{}/model_index.json: {} is a {}; {} runs a {}", path_, component->name,
                            component->class_name, files_.class_name, p_.row->denoiser_class);
  }

  Status open_vae(AutoencoderModel autoencoder) {
    network_.bounds[Symbol::kBatch] = 1;
    const int64_t side = p_.options.max_side / autoencoder.scale;
    set_extents(autoencoder.grid,
                {.height = side, .width = side, .frames = autoencoder.latent_frames(max_frames(*p_.row))},
                network_.bounds);
    if (autoencoder.has_frames() != (p_.row->num_frames > 0))
      return invalid_argument("{}: the vae decodes {}, and {} makes {}", path_,
                              autoencoder.has_frames() ? "video" : "images", files_.class_name,
                              p_.row->num_frames > 0 ? "video" : "images");
    const int64_t channels = p_.denoiser->model().latent_channels;
    if (autoencoder.latent_channels != channels)
      return invalid_argument("{}: the vae has {} latent channels, the {} {}", path_, autoencoder.latent_channels,
                              p_.row->denoiser_component, channels);
    REDLINE_ASSIGN(p_.vae, VaeCodec::make(std::move(autoencoder), network_, p_.options.max_side, p_.options.vae_tile,
                                          resources_of(*p_.runtime)));
    return {};
  }

  void add_adapter_banks() {
    const auto reopened = [&](std::string_view component) {
      return base_weights([files = files_, name = std::string(component)] { return files.open_component(name); });
    };
    p_.adapters.add("", p_.denoiser->adapters());
    p_.denoiser->adapters().set_base(reopened(p_.row->denoiser_component));
    for (const auto& [name, encoder] : p_.text_encoders) {
      p_.adapters.add(name, encoder->adapters(), std::string(adapter_aliases_[name]));
      encoder->adapters().set_base(reopened(name));
    }
  }

  void set_defaults() {
    const PipelineRow& row = *p_.row;
    const PipelineDefaults& own = files_.defaults;
    int64_t side = row.side;
    if (side == 0) side = sample_size_ > 0 ? sample_size_ * p_.vae.scale() : kDefaultSide;
    ImageRequest& d = p_.defaults;
    d.width = own.width.value_or(side);
    d.height = own.height.value_or(side);
    d.num_frames = max_frames(row);
    d.num_inference_steps = own.num_inference_steps.value_or(row.num_inference_steps);
    d.guidance_scale = own.guidance_scale.value_or(row.guidance_scale);
    d.true_cfg_scale = own.true_cfg_scale.value_or(1);
    d.negative_prompt = own.negative_prompt.value_or("");
    d.max_sequence_length = own.max_sequence_length.value_or(row.max_sequence_length);
    if (p_.denoiser->is_inpainting()) d.strength = 1;  // the masked area starts from pure noise
    p_.zeros_for_empty_prompt = row.zeros_for_empty_prompt && files_.zeros_for_empty_prompt.value_or(true);
  }

  std::string path_;
  PipelineFiles files_;
  Pipeline& p_;
  ExecutableOptions network_;
  std::map<std::string, std::string_view> adapter_aliases_;
  int64_t sample_size_ = 0;
};

}  // namespace

std::vector<const Executable*> Pipeline::networks() const {
  std::vector<const Executable*> all = denoiser->networks();
  for (const auto& [name, encoder] : text_encoders) all.push_back(&encoder->network());
  for (const Executable* network : vae.networks()) all.push_back(network);
  return all;
}

Result<std::unique_ptr<Pipeline>> load_pipeline(const std::string& path, const ImageOptions& options) {
  return open_on_device(options.device, [&](const std::string& device) -> Result<std::unique_ptr<Pipeline>> {
    REDLINE_ASSIGN(PipelineFiles files, PipelineFiles::open(path));
    files.denoiser_file = options.transformer_file;
    auto pipeline = std::make_unique<Pipeline>();
    REDLINE_ASSIGN(pipeline->row, find_pipeline(files.class_name).within(path));
    REDLINE_TRY(check_options(options));
    pipeline->options = options;
    pipeline->options.device = device;
    REDLINE_TRY(PipelineLoader(path, std::move(files), *pipeline).load());
    return pipeline;
  });
}

}  // namespace redline
