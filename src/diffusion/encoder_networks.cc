// Text encoders and autoencoders as separate networks.
#include <fmt/ranges.h>

#include <algorithm>

#include "diffusion/image_network.h"
#include "diffusion/network_io.h"
#include "graph/adapter_sites.h"

namespace redline {

Result<std::unique_ptr<ImageNetwork>> TextEncoderNetwork::make(TextEncoderModel model, std::shared_ptr<Runtime> runtime,
                                                               const ExecutableOptions& network,
                                                               const NetworkOptions& options) {
  std::unique_ptr<TextEncoderNetwork> made(new TextEncoderNetwork());
  if (options.max_adapter_rank > 0)
    made->adapters_ = NetworkAdapters(
        add_adapter_sites(model.graph, options.max_adapter_rank, [](const std::string&) { return true; }));
  REDLINE_ASSIGN(made->network_, Executable::make(std::move(model.graph), network, resources_of(*runtime)));
  made->max_adapter_rank_ = options.max_adapter_rank;
  made->max_tokens_ = options.max_text_tokens;
  if (model.has_position_limit) made->max_tokens_ = std::min(made->max_tokens_, model.max_tokens);
  made->model_ = std::move(model);
  made->runtime_ = std::move(runtime);
  return std::unique_ptr<ImageNetwork>(std::move(made));
}

Status TextEncoderNetwork::run(std::span<const NamedTensor> inputs, std::span<const NamedOutput> outputs,
                               const NetworkStep& /*step*/) {
  const std::lock_guard lock(mutex_);
  constexpr std::string_view kInputs[] = {"tokens", "key_lengths"};
  const bool has_lengths = network_.has_input("key_lengths");
  REDLINE_TRY(expect_known(inputs, std::span(kInputs).first(has_lengths ? 2 : 1)));
  REDLINE_ASSIGN(const NamedTensor* tokens, take_input(inputs, "tokens", 2));
  const int64_t batch = tokens->shape[0], length = tokens->shape[1];
  if (batch < 1 || length < 1 || length > max_tokens_)
    return invalid_argument("\"tokens\" is [{}]; the encoder takes 1 to {} tokens", fmt::join(tokens->shape, ", "),
                            max_tokens_);
  const auto* ids = static_cast<const int32_t*>(tokens->data);
  for (int64_t i = 0; i < batch * length; ++i)
    if (ids[i] < 0 || ids[i] >= model_.vocab_size)
      return invalid_argument("\"tokens\" has id {}; the vocabulary has {}", ids[i], model_.vocab_size);
  const int32_t* lengths = nullptr;
  if (const NamedTensor* given = find_tensor(inputs, "key_lengths")) {
    if (given->shape != std::vector<int64_t>{batch})
      return invalid_argument("\"key_lengths\" is [{}], and there are {} texts", fmt::join(given->shape, ", "), batch);
    lengths = static_cast<const int32_t*>(given->data);
    for (int64_t i = 0; i < batch; ++i)
      if (lengths[i] < 1 || lengths[i] > length)
        return invalid_argument("\"key_lengths\" has {}; a text has {} tokens", lengths[i], length);
  }
  const auto elements = [&](const NamedOutput& output) {
    return output.name == "pooled" ? model_.pooled_width : length * model_.width;
  };
  for (const NamedOutput& output : outputs) {
    if (!network_.has_output(output.name))
      return unknown_output(output, has_lengths ? "hidden" : "hidden, penultimate, pooled");
    REDLINE_TRY(expect_room(output, batch * elements(output)));
  }
  // Texts are encoded one at a time, as in TextEncoder::encode().
  for (int64_t i = 0; i < batch; ++i) {
    const std::span<const int32_t> own(ids + i * length, static_cast<size_t>(length));
    REDLINE_TRY(run_text_encoder(network_, own, pooled_place(model_.pooled_token, own), lengths ? lengths[i] : length,
                                 adapters_));
    for (const NamedOutput& output : outputs)
      std::copy_n(network_.output(output.name), elements(output), output.data.begin() + i * elements(output));
  }
  return {};
}

Status TextEncoderNetwork::set_adapters(std::span<const AdapterFactorPair> pairs) {
  const std::lock_guard lock(mutex_);
  return replace_adapters(adapters_, pairs, max_adapter_rank_, active_adapters_);
}

Status TextEncoderNetwork::set_cache(const std::string&, double, int64_t) { return no_cache("a text encoder"); }

ImageNetwork::Report TextEncoderNetwork::report() const {
  const std::lock_guard lock(mutex_);
  Report report;
  report.kind = "text_encoder";
  report.inputs = {"tokens"};
  if (network_.has_input("key_lengths")) report.inputs.emplace_back("key_lengths");
  for (const Executable::Port& port : network_.outputs()) report.outputs.push_back(port.name);
  report.width = model_.width;
  report.pooled_width = model_.pooled_width;
  const Executable* const networks[] = {&network_};
  report.memory = memory_of(networks);
  return report;
}

Result<std::unique_ptr<ImageNetwork>> AutoencoderNetwork::make(AutoencoderModel model, std::shared_ptr<Runtime> runtime,
                                                               const ExecutableOptions& network,
                                                               const NetworkOptions& options) {
  std::unique_ptr<AutoencoderNetwork> made(new AutoencoderNetwork());
  const int64_t max_side = options.max_latent_side * model.scale;
  REDLINE_ASSIGN(made->codec_,
                 VaeCodec::make(std::move(model), network, max_side, options.vae_tile, resources_of(*runtime)));
  made->max_latent_side_ = options.max_latent_side;
  made->runtime_ = std::move(runtime);
  return std::unique_ptr<ImageNetwork>(std::move(made));
}

Status AutoencoderNetwork::expect_side(const char* name, int64_t side) const {
  if (side >= 1 && side <= max_latent_side_) return {};
  return invalid_argument("\"{}\": {} pixels of the latents, max_latent_side is {}", name, side, max_latent_side_);
}

Status AutoencoderNetwork::decode(const NamedTensor& latents, std::span<float> out) {
  const int64_t scale = codec_.scale();
  const LatentShape shape = {codec_.latent_channels(), latents.shape[2], latents.shape[3]};
  const LatentShape pixels = {3, shape.height * scale, shape.width * scale};
  if (latents.shape[1] != shape.channels)
    return invalid_argument("\"latents\" is [{}]; the autoencoder has {} channels", fmt::join(latents.shape, ", "),
                            shape.channels);
  REDLINE_TRY(expect_side("latents", shape.height));
  REDLINE_TRY(expect_side("latents", shape.width));
  REDLINE_TRY(expect_room({"image", out}, latents.shape[0] * pixels.elements()));
  for (int64_t i = 0; i < latents.shape[0]; ++i) {
    const std::span<const float> z =
        floats_of(latents).subspan(static_cast<size_t>(i * shape.elements()), static_cast<size_t>(shape.elements()));
    REDLINE_ASSIGN(const std::span<const float> rows, codec_.decode_rows(z, shape));
    unpack_latents(pixels, rows.data(), 3, out.data() + i * pixels.elements());
  }
  return {};
}

Status AutoencoderNetwork::encode(const NamedTensor& image, std::span<float> out) {
  const int64_t scale = codec_.scale(), columns = codec_.moment_columns();
  const LatentShape pixels = {3, image.shape[2], image.shape[3]};
  if (image.shape[1] != 3 || pixels.height % scale != 0 || pixels.width % scale != 0)
    return invalid_argument("\"image\" is [{}]; it has 3 channels and sides that are multiples of {}",
                            fmt::join(image.shape, ", "), scale);
  const LatentShape moments = {columns, pixels.height / scale, pixels.width / scale};
  REDLINE_TRY(expect_side("image", moments.height));
  REDLINE_TRY(expect_side("image", moments.width));
  REDLINE_TRY(expect_room({"moments", out}, image.shape[0] * moments.elements()));
  std::vector<float> rows(static_cast<size_t>(pixels.elements()));
  for (int64_t i = 0; i < image.shape[0]; ++i) {
    pack_latents(pixels, floats_of(image).data() + i * pixels.elements(), rows.data());
    REDLINE_ASSIGN(const std::span<const float> made, codec_.encode_rows(rows, moments));
    unpack_latents(moments, made.data(), columns, out.data() + i * moments.elements());
  }
  return {};
}

Status AutoencoderNetwork::run(std::span<const NamedTensor> inputs, std::span<const NamedOutput> outputs,
                               const NetworkStep& /*step*/) {
  const std::lock_guard lock(mutex_);
  constexpr std::string_view kInputs[] = {"latents", "image"};
  REDLINE_TRY(expect_known(inputs, kInputs));
  for (const NamedOutput& output : outputs) {
    if (output.name == "image") {
      REDLINE_ASSIGN(const NamedTensor* latents, take_input(inputs, "latents", 4));
      REDLINE_TRY(decode(*latents, output.data));
    } else if (output.name == "moments") {
      REDLINE_ASSIGN(const NamedTensor* image, take_input(inputs, "image", 4));
      REDLINE_TRY(encode(*image, output.data));
    } else {
      return unknown_output(output, "image, moments");
    }
  }
  return {};
}

Status AutoencoderNetwork::set_adapters(std::span<const AdapterFactorPair> pairs) {
  if (pairs.empty()) return {};
  return unsupported("adapter \"{}\": autoencoders have no adapters", pairs[0].adapter);
}

Status AutoencoderNetwork::set_cache(const std::string&, double, int64_t) { return no_cache("an autoencoder"); }

ImageNetwork::Report AutoencoderNetwork::report() const {
  const std::lock_guard lock(mutex_);
  Report report;
  report.kind = "autoencoder";
  report.inputs = {"latents", "image"};
  report.outputs = {"image", "moments"};
  report.latent_channels = codec_.latent_channels();
  report.scale = codec_.scale();
  report.memory = memory_of(codec_.networks());
  return report;
}

}  // namespace redline
