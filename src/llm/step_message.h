// One step of a language model as a value: everything that a stepper reads, without pointers into sequences. It can be
// queued, written to a file, sent to another rank and executed again.
#pragma once

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/step.h"
#include "llm/state_pool.h"

namespace redline {

/// The inputs of a step. Stepper makes it of the entries of a batch, and executes it (Stepper::execute).
struct StepMessage {
  /// Changes of pages before the step, in this order.
  std::vector<PageChange> page_changes;
  /// The sequences of the step. Their rows follow each other and are all of its tokens.
  std::vector<SequenceRows> sequences;
  std::vector<int32_t> tokens;     ///< [tokens]; rows of embeddings have their placeholder
  std::vector<int32_t> positions;  ///< [tokens, axes]
  std::vector<int32_t> lengths;    ///< [tokens] lengths of the tokens' sequences; empty unless rope depends on them
  std::vector<int32_t> logit_rows, hidden_rows;  ///< rows of the step whose logits and hidden states are computed
  std::vector<int32_t> embedding_rows;           ///< rows of the step that have embeddings, ascending
  std::vector<float> embeddings;                 ///< [embedding_rows, hidden_size]
  std::vector<std::vector<float>> layer_rows;    ///< for each port kLayerRows: [embedding_rows, hidden_size]

  /// The page tables of the sequences in one state group (StateStep::pages), one after the other.
  struct PageTables {
    std::vector<int32_t> pages;
    std::vector<int32_t> begin;  ///< [sequences + 1]: sequence s has pages[begin[s]] to pages[begin[s + 1] - 1]
    friend bool operator==(const PageTables&, const PageTables&) = default;
  };
  std::vector<PageTables> groups;  ///< one for each state group

  /// The adapters of some rows (AdapterSegment).
  struct Adapters {
    Symbol unit = Symbol::kTokens;
    int64_t row_begin = 0, row_end = 0;
    std::vector<WeightedAdapter> adapters;
  };
  std::vector<Adapters> adapters;
  std::vector<SampleRow> samples;  ///< [logit_rows]; empty: the host samples all rows

  /// Empties all lists. Their memory is kept for the next step.
  void clear();

  /// Returns the message in bytes, the same on every machine. unsupported: an adapter without identity.
  Result<std::string> to_bytes() const;
  /// Finds the adapter with an identity; nullptr: there is none.
  using FindAdapter = std::function<std::shared_ptr<const Adapter>(uint64_t identity)>;
  /// Reads to_bytes(). invalid_argument: the bytes are not a message. not_found: `find_adapter` does not know one of
  /// the adapters. The numbers are checked when the message is executed.
  static Result<StepMessage> from_bytes(std::string_view bytes, const FindAdapter& find_adapter = {});
};

/// Writes the steps of a model to a file, for read_steps().
class StepRecorder {
 public:
  /// io: the file cannot be created.
  static Result<StepRecorder> create(const std::string& path);
  /// Appends a step. io: the file cannot be written. Errors of StepMessage::to_bytes().
  Status write(const StepMessage& step);
  /// Closes the file. io: its last bytes cannot be written.
  Status close();

 private:
  explicit StepRecorder(std::string path) : file_(path, std::ios::binary), path_(std::move(path)) {}
  Status failed() const;
  std::ofstream file_;
  std::string path_;
};

/// Reads a file of StepRecorder. A model that executes its steps on new pages computes the outputs of the recorded
/// ones.
/// invalid_argument: the file is not one, or is cut off. Errors of StepMessage::from_bytes().
Result<std::vector<StepMessage>> read_steps(const std::string& path, const StepMessage::FindAdapter& find_adapter = {});

}  // namespace redline
