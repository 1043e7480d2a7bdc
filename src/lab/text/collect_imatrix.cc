#include "lab/text/collect_imatrix.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/column_squares.h"
#include "llm/text_sequence.h"
#include "models/checkpoint/weight_examiner.h"
#include "models/files/random_model.h"
#include "runtime/runtime_resources.h"

namespace redline::lab {
namespace {

/// Returns the name of the checkpoint's tensor that a weight of the graph is, or whose rows it has; "" for weights that
/// were rearranged.
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
  std::string output;              ///< name of the graph's output, such as "squares.0"
  std::vector<std::string> names;  ///< names of the weights in GGUF files
  int64_t matrices = 1, columns = 0;
  bool has_counts = false;  ///< counts follow the sums of each matrix; otherwise every token counts
  std::shared_ptr<const std::vector<int32_t>> order;  ///< order of the columns (WeightSource::columns)
  std::vector<double> sums, counts;
};

/// Returns the common name of a matrix of all experts, from the name of expert 0's: "mlp.experts.0.up_proj.weight" ->
/// "mlp.experts.up_proj.weight".
std::string without_expert(const std::string& name) {
  const size_t at = name.rfind(".0.");
  return at == std::string::npos ? name : name.substr(0, at) + name.substr(at + 2);
}

}  // namespace

Result<ImportanceMatrix> collect_imatrix(const std::string& path, std::string_view text, const CollectOptions& options,
                                         const std::function<bool(int64_t done, int64_t all)>& on_chunk) {
  REDLINE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(path));
  REDLINE_ASSIGN(LanguageModel model, build_language_model(checkpoint));
  REDLINE_ASSIGN(const ModelFamily* family, find_model_family(checkpoint));
  REDLINE_ASSIGN(const TextModel described, TextModel::make(checkpoint, model, options.chunk_size));
  REDLINE_ASSIGN(std::vector<int32_t> tokens, described.encode(text, false, true, {}));
  REDLINE_ASSIGN(const std::vector<int32_t> before, described.encode("", false, true, {}));
  const auto size = static_cast<size_t>(options.chunk_size);
  const auto all = static_cast<int64_t>(tokens.size() / size);
  const int64_t chunks = options.chunks > 0 ? std::min(options.chunks, all) : all;
  if (chunks == 0)
    return invalid_argument("the text has {} tokens, one chunk of {} is the least; give more text or smaller chunks",
                            tokens.size(), size);

  std::vector<Collected> collected;
  for (const CollectedSquares& squares : collect_column_squares(model.graph)) {
    Collected& c = collected.emplace_back();
    c.output = fmt::format("squares.{}", collected.size() - 1);
    c.has_counts = squares.num_experts > 0;
    c.matrices = std::max<int64_t>(squares.num_experts, 1);
    for (size_t i = 0; i < squares.matrices.size(); i += static_cast<size_t>(c.matrices)) {
      const ValueInfo& weight = model.graph.value(squares.matrices[i]);
      const std::string tensor = c.has_counts ? without_expert(weight.name) : tensor_of(checkpoint, weight);
      const std::string name = tensor.empty() ? "" : family->gguf.to_gguf(tensor);
      if (!name.empty() && std::find(c.names.begin(), c.names.end(), name) == c.names.end()) c.names.push_back(name);
    }
    c.columns = model.graph.value(squares.matrices[0]).shape[1].constant();
    c.order = model.graph.value(squares.matrices[0]).weight.columns;
    c.sums.resize(static_cast<size_t>(c.matrices * c.columns));
    c.counts.resize(static_cast<size_t>(c.matrices));
  }

  TextEngineOptions engine;
  engine.dtype = options.dtype;
  engine.use_interpreter = options.use_interpreter;
  engine.context = options.chunk_size;
  engine.max_batch_tokens = options.chunk_size;
  engine.max_sequences = 1;
  REDLINE_ASSIGN(const std::shared_ptr<Runtime> runtime, Runtime::open({options.threads, ""}));
  REDLINE_ASSIGN(const auto stepper,
                 Stepper::make(described.step_model(std::move(model.graph), resources_of(*runtime).kernels()), engine,
                               {}, resources_of(*runtime)));
  TextSequence sequence(*stepper, described.info, {});
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::span<int32_t> ids = std::span(tokens).subspan(static_cast<size_t>(chunk) * size, size);
    if (!before.empty()) ids[0] = before[0];
    sequence.truncate(0);
    REDLINE_TRY(sequence.append(ids, {}));
    for (Collected& c : collected) {
      const float* squares = stepper->executable().output(c.output);
      for (int64_t m = 0; m < c.matrices; ++m, squares += c.has_counts ? 1 : 0) {
        for (int64_t k = 0; k < c.columns; ++k, ++squares) {
          const int64_t column = c.order ? (*c.order)[static_cast<size_t>(k)] : k;
          c.sums[static_cast<size_t>(m * c.columns + column)] += double{*squares};
          if (!std::isfinite(*squares))
            return WeightExaminer(path).explain(invalid_argument("{}: chunk {}: an activation of {} is not finite",
                                                                 path, chunk, c.names.empty() ? c.output : c.names[0]));
        }
        c.counts[static_cast<size_t>(m)] += c.has_counts ? double{*squares} : static_cast<double>(options.chunk_size);
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
                              std::vector<float>(c.counts.begin(), c.counts.end())};
  return matrix;
}

}  // namespace redline::lab
