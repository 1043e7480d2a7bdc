// The handles of the C interface and the objects that they refer to.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "capi/boundary.h"
#include "redline/embedding.h"
#include "redline/image.h"
#include "redline/network.h"
#include "redline/text.h"

namespace redline::capi {

/// Adapters that a model was opened with, in the form that callers borrow.
struct OpenedAdapters {
  std::vector<std::string> names, paths;
  std::vector<double> values;
  std::vector<redline_adapter_weight> weights;  ///< weights whose names point into `names`

  /// Reads a caller's list. invalid_argument: an adapter without a path, or a name that occurs twice.
  static Result<std::unique_ptr<OpenedAdapters>> read(const redline_adapter* adapters, size_t count);
  AdapterWeights pairs() const;
  /// Returns the sum of the ranks of all files. `rank_of`: text_adapter_rank or adapter_rank.
  Result<int64_t> rank(Result<int64_t> (*rank_of)(const std::string&)) const;
};

Result<AdapterWeights> adapter_weights(const redline_adapter_weight* adapters, size_t count);

struct TextContents {
  std::unique_ptr<TextEngine> engine;
  std::unique_ptr<OpenedAdapters> adapters;
};

struct ImageContents {
  std::unique_ptr<ImageEngine> engine;
  std::unique_ptr<OpenedAdapters> adapters;
  ImageRequest defaults;
  std::timed_mutex turn;  ///< held by the call that computes
};

}  // namespace redline::capi

struct redline_runtime : redline::capi::Counted<redline::Runtime> {
  using Counted::Counted;
};
struct redline_model : redline::capi::Counted<redline::capi::TextContents> {
  using Counted::Counted;
};
struct redline_embedding_model : redline::capi::Counted<redline::EmbeddingEngine> {
  using Counted::Counted;
};
struct redline_network : redline::capi::Counted<redline::ImageNetwork> {
  using Counted::Counted;
};
struct redline_image_pipeline : redline::capi::Counted<redline::capi::ImageContents> {
  using Counted::Counted;
};

struct redline_prompt_spans {
  redline::Prompt prompt;
};

namespace redline::capi {

/// Returns the runtime of an options struct; null if it has none.
inline Result<std::shared_ptr<Runtime>> runtime_of(redline_runtime* handle) {
  if (handle == nullptr) return std::shared_ptr<Runtime>();
  REDLINE_TRY(usable(handle, "runtime"));
  return handle->shared;
}

/// Opens an engine with the adapters of `given`, and a max_adapter_rank that holds all of them together.
template <class Engine, class Contents, class Options, class Given>
Status open_engine(Contents& contents, const char* path, Options options, const Given& given,
                   Result<int64_t> (*rank_of)(const std::string&)) {
  REDLINE_ASSIGN(contents.adapters, OpenedAdapters::read(given.adapters, given.num_adapters));
  REDLINE_ASSIGN(const int64_t rank, contents.adapters->rank(rank_of));
  options.max_adapter_rank = std::max(options.max_adapter_rank, rank);
  REDLINE_ASSIGN(contents.engine, Engine::open(path, options));
  for (size_t i = 0; i < contents.adapters->names.size(); ++i)
    REDLINE_TRY(contents.engine->load_adapter(contents.adapters->names[i], contents.adapters->paths[i]));
  return {};
}

}  // namespace redline::capi
