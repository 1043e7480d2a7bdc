// Reads any JSON as the config of a model of any kind: language models, encoders, the networks of image pipelines, and
// the methods by which checkpoints are quantized. There are no weights, so each reader ends at the first tensor at the
// latest.
#include "fuzz_input.h"
#include "models/checkpoint/quantized_checkpoint.h"
#include "models/checkpoint/text_part.h"
#include "models/image/image_registry.h"
#include "models/registry.h"
#include "text/json_reader.h"

using namespace redline;

namespace {

template <class T>
void check(const Result<T>& result) {
  require(result.ok() || !result.status().message().empty());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto config = parse_json_object(fuzz_text(data, size), "config.json");
  if (!config.ok()) return 0;
  Checkpoint checkpoint;
  checkpoint.path = "x";
  checkpoint.format = "safetensors";
  checkpoint.config = std::move(config).value();
  checkpoint.generation = nlohmann::json::object();
  (void)TextPart::take(checkpoint.config);
  check(find_quantized_reader(checkpoint));
  if (const EncoderFamily* family = find_encoder_family(checkpoint)) check(family->build(checkpoint));
  check(build_language_model(checkpoint));
  for (const std::string_view name : image_component_classes()) {
    if (const auto row = find_denoiser(name); row.ok()) check((*row)->build(checkpoint, 1));
    if (const auto row = find_autoencoder(name); row.ok()) check((*row)->build(checkpoint));
    if (const auto row = find_text_encoder(name); row.ok()) check((*row)->build(checkpoint));
  }
  return 0;
}
