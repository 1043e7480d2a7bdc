#include "models/image/image_registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/text_distance.h"

namespace redline {

// The registries. Each row is defined in the file of its network or pipeline.
extern const PipelineRow kFluxPipeline;
extern const PipelineRow kPixartPipeline;
extern const PipelineRow kSd3Pipeline;
extern const PipelineRow kSdPipeline;
extern const PipelineRow kSdxlPipeline;
extern const DenoiserRow kFluxDenoiser;
extern const DenoiserRow kPixartDenoiser;
extern const DenoiserRow kSd3Denoiser;
extern const DenoiserRow kUnetDenoiser;
extern const AutoencoderRow kAutoencoderKl;
extern const AutoencoderRow kAutoencoderTiny;
extern const TextEncoderRow kClipTextEncoder;
extern const TextEncoderRow kT5TextEncoder;

namespace {

constexpr const PipelineRow* kPipelines[] = {
    &kFluxPipeline, &kSd3Pipeline, &kPixartPipeline, &kSdPipeline, &kSdxlPipeline,
};
constexpr const DenoiserRow* kDenoisers[] = {
    &kFluxDenoiser,
    &kSd3Denoiser,
    &kPixartDenoiser,
    &kUnetDenoiser,
};
constexpr const AutoencoderRow* kAutoencoders[] = {
    &kAutoencoderKl,
    &kAutoencoderTiny,
};
constexpr const TextEncoderRow* kTextEncoders[] = {
    &kClipTextEncoder,
    &kT5TextEncoder,
};

template <class Row>
bool has_class(const Row& row, std::string_view class_name) {
  return std::find(row.class_names.begin(), row.class_names.end(), class_name) != row.class_names.end();
}
bool has_class(const AutoencoderRow& row, std::string_view class_name) { return row.class_name == class_name; }

template <class Row>
void add_classes(const Row& row, std::vector<std::string_view>& classes) {
  classes.insert(classes.end(), row.class_names.begin(), row.class_names.end());
}
void add_classes(const AutoencoderRow& row, std::vector<std::string_view>& classes) {
  classes.push_back(row.class_name);
}

template <class Row, size_t kCount>
Result<const Row*> find_row(const Row* const (&rows)[kCount], std::string_view class_name, const char* kind) {
  std::vector<std::string_view> known;
  for (const Row* row : rows) {
    if (has_class(*row, class_name)) return row;
    add_classes(*row, known);
  }
  return unsupported("{} class \"{}\"{}; Redline has {}", kind, class_name, the_nearest(class_name, known),
                     fmt::join(known, ", "));
}

}  // namespace

Result<const PipelineRow*> find_pipeline(std::string_view class_name) {
  return find_row(kPipelines, class_name, "pipeline");
}
Result<const TextEncoderRow*> find_text_encoder(std::string_view class_name) {
  return find_row(kTextEncoders, class_name, "text encoder");
}
Result<const DenoiserRow*> find_denoiser(std::string_view class_name) {
  return find_row(kDenoisers, class_name, "denoiser");
}
Result<const AutoencoderRow*> find_autoencoder(std::string_view class_name) {
  return find_row(kAutoencoders, class_name.empty() ? kAutoencoderKl.class_name : class_name, "autoencoder");
}

std::vector<std::string_view> image_component_classes() {
  std::vector<std::string_view> classes;
  for (const DenoiserRow* row : kDenoisers) add_classes(*row, classes);
  for (const AutoencoderRow* row : kAutoencoders) add_classes(*row, classes);
  for (const TextEncoderRow* row : kTextEncoders) add_classes(*row, classes);
  return classes;
}

std::vector<std::string_view> single_file_classes() {
  std::vector<std::string_view> classes;
  for (const DenoiserRow* row : kDenoisers)
    if (row->single_file.open) classes.push_back(row->class_names.front());
  return classes;
}

bool is_single_file_architecture(std::string_view gguf_architecture) {
  return std::any_of(std::begin(kDenoisers), std::end(kDenoisers), [&](const DenoiserRow* row) {
    return row->single_file.open && row->single_file.gguf_architecture == gguf_architecture;
  });
}

bool is_single_file_header(std::string_view safetensors_header) {
  for (const DenoiserRow* row : kDenoisers)
    for (const std::string_view name : row->single_file.safetensors_names)
      if (safetensors_header.find(name) != std::string_view::npos) return true;
  return false;
}

Result<Checkpoint> open_single_file(const std::string& path) {
  Status other =
      unsupported("{}: not a denoiser in one file; Redline reads {}", path, fmt::join(single_file_classes(), ", "));
  for (bool is_first = true; const DenoiserRow* row : kDenoisers) {
    if (!row->single_file.open) continue;
    Result<Checkpoint> opened = row->single_file.open(path);
    if (opened.ok() || opened.status().code() != Code::unsupported) return opened;
    if (std::exchange(is_first, false)) other = opened.status();
  }
  return other;
}

std::vector<StoredModule> find_stored_modules(const std::string& module) {
  std::vector<StoredModule> all;
  for (const DenoiserRow* row : kDenoisers) {
    if (!row->adapter_names) continue;
    const std::vector<StoredModule> names = row->adapter_names(module);
    all.insert(all.end(), names.begin(), names.end());
  }
  return all;
}

bool is_same_component_class(std::string_view a, std::string_view b) {
  return a == b || std::any_of(std::begin(kDenoisers), std::end(kDenoisers),
                               [&](const DenoiserRow* row) { return has_class(*row, a) && has_class(*row, b); });
}

}  // namespace redline
