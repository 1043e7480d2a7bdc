#include "lab/text/collect_imatrix.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/column_squares.h"
#include "lab/random/random_model.h"
#include "llm/text_sequence.h"
#include "runtime/runtime_resources.h"

namespace redline::lab {
namespace {

/// The checkpoint's tensor that a weight of the graph is, or is rows of; "": none (weights that were rearranged).
std::string tensor_of(const Checkpoint& checkpoint, const ValueInfo& weight) {
  if (checkpoint.tensors.count(weight.name) > 0) return weight.name;
  const auto* at = static_cast<const uint8_t*>(weight.weight.view.data);
  for (const auto& [name, source] : checkpoint.tensors) {
    const auto* begin = static_cast<const uint8_t*>(source.view.data);
    if (at >= begin && at < begin + source.view.bytes()) return name;
  }
  return "";
}

struct Collected {
  std::string output;              ///< "squares.0"
  std::vector<std::string> names;  ///< in GGUF files
  std::vector<double> sums;
};

}  // namespace

Result<ImportanceMatrix> collect_imatrix(const std::string& path, std::string_view text, const CollectOptions& options,
                                         const std::function<bool(int64_t done, int64_t all)>& on_chunk) {
  REDLINE_ASSIGN(Checkpoint checkpoint, open_checkpoint(path));
  REDLINE_ASSIGN(LanguageModel model, build_language_model(checkpoint));
  REDLINE_ASSIGN(const ModelFamily* family, find_model_family(checkpoint));
  REDLINE_ASSIGN(const TextModel described, TextModel::make(checkpoint, model, options.chunk_size));
  REDLINE_ASSIGN(std::vector<int32_t> tokens, described.encode(text, false, true));
  REDLINE_ASSIGN(const std::vector<int32_t> before, described.encode("", false, true));
  const auto size = static_cast<size_t>(options.chunk_size);
  const auto all = static_cast<int64_t>(tokens.size() / size);
  const int64_t chunks = options.chunks > 0 ? std::min(options.chunks, all) : all;
  if (chunks == 0)
    return invalid_argument("the text has {} tokens, one chunk of {} is the least; give more text or smaller chunks",
                            tokens.size(), size);

  std::vector<Collected> collected;
  for (const std::vector<ValueId>& matrices : collect_column_squares(model.graph)) {
    Collected& c = collected.emplace_back();
    c.output = fmt::format("squares.{}", collected.size() - 1);
    for (const ValueId id : matrices) {
      const ValueInfo& weight = model.graph.value(id);
      if (weight.shape.size() != 2)
        return unsupported("{}: {} holds the matrices of experts, of which no statistics are collected yet", path,
                           weight.name);
      const std::string tensor = tensor_of(checkpoint, weight);
      const std::string name = tensor.empty() ? "" : family->gguf.to_gguf(tensor);
      if (!name.empty() && std::find(c.names.begin(), c.names.end(), name) == c.names.end()) c.names.push_back(name);
    }
    c.sums.resize(static_cast<size_t>(model.graph.value(matrices[0]).shape[1].constant()));
  }

  TextEngineOptions engine;
  engine.dtype = options.dtype;
  engine.use_interpreter = options.use_interpreter;
  engine.context = options.chunk_size;
  engine.max_batch_tokens = options.chunk_size;
  engine.max_sequences = 1;
  REDLINE_ASSIGN(const std::shared_ptr<Runtime> runtime, Runtime::open({options.threads, ""}));
  REDLINE_ASSIGN(const auto stepper, Stepper::make(std::move(model.graph), described, engine, runtime->resources()));
  TextSequence sequence(*stepper, described.info.vocab_size, {});
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::span<int32_t> ids = std::span(tokens).subspan(static_cast<size_t>(chunk) * size, size);
    if (!before.empty()) ids[0] = before[0];
    sequence.truncate(0);
    REDLINE_TRY(sequence.append(ids, {}));
    for (Collected& c : collected) {
      const float* squares = stepper->executable().output(c.output);
      for (size_t k = 0; k < c.sums.size(); ++k) {
        c.sums[k] += double{squares[k]};
        if (!std::isfinite(squares[k]))
          return invalid_argument("{}: chunk {}: an activation of {} is not finite", path, chunk,
                                  c.names.empty() ? c.output : c.names[0]);
      }
    }
    if (!on_chunk(chunk + 1, chunks)) return cancelled("interrupted after {} of {} chunks", chunk + 1, chunks);
  }
  ImportanceMatrix matrix;
  if (!options.dataset.empty()) matrix.datasets.push_back(options.dataset);
  matrix.chunks = chunks;
  matrix.chunk_size = options.chunk_size;
  for (const Collected& c : collected)
    for (const std::string& name : c.names)
      matrix.entries[name] = {std::vector<float>(c.sums.begin(), c.sums.end()),
                              {static_cast<float>(chunks * options.chunk_size)}};
  return matrix;
}

}  // namespace redline::lab
