// Wraps structs of the C interface as Python objects whose attributes are the fields.
#pragma once

#include "python/bindings.h"

namespace redline::python {

/// A struct and the memory that its pointers refer to.
template <class S>
struct Options {
  S value = {};
  std::vector<std::shared_ptr<const void>> memory;
};

using RuntimeOptions = Options<redline_runtime_options>;
using ModelOptions = Options<redline_model_options>;
using GenerateOptions = Options<redline_generate_options>;
using LogitsOptions = Options<redline_logits_options>;
using EmbeddingOptions = Options<redline_embedding_options>;
using EmbedOptions = Options<redline_embed_options>;
using PipelineOptions = Options<redline_image_pipeline_options>;
using ImageRequest = Options<redline_image_request>;
using NetworkOptions = Options<redline_network_options>;
using NetworkStep = Options<redline_network_step>;

}  // namespace redline::python
