// Finds the language model in a folder: its settings and the names of its tensors.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

/// The language model of a folder. A multimodal model has its settings in "text_config" and its tensors under a prefix,
/// for example "language_model." or "model.language_model."; a decoder without output matrix has no prefix at all.
class TextPart {
 public:
  /// Replaces `config` by that of the language model if there is one. Settings that only the whole model has (special
  /// tokens, how weights are stored) are kept.
  static TextPart take(nlohmann::json& config);

  /// Returns true if the model has other parts, which read images or sound.
  bool is_part() const { return is_part_; }
  /// Chooses the prefix of the language model's tensors from the names of all tensors.
  void find_prefix(const std::vector<std::string_view>& stored);
  /// Returns the language model's name of a stored tensor, under "model." or "lm_head.". "": the tensor belongs to
  /// another part, and is counted for left_out().
  std::string name_of(std::string_view stored);
  /// Returns the prefix that stands for "model." in the file; "model.": the names are unchanged.
  const std::string& prefix() const { return prefix_; }
  /// Returns "439 tensors of model.vision_tower and model.multi_modal_projector", or "".
  std::string left_out() const;

 private:
  std::string leave_out(std::string_view stored, std::string_view prefix);

  bool is_part_ = false, has_prefix_ = false;
  std::string prefix_ = "model.";
  std::map<std::string, int64_t> others_;  ///< number of tensors by module
};

}  // namespace redline
