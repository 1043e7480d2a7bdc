// Reads the language model in a folder of a multimodal model.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

/// The language model of a multimodal model. The folder has its settings in "text_config" and its tensors under a
/// prefix, "language_model." or "model.language_model.".
class TextPart {
 public:
  /// Replaces `config` by that of the language model if there is one. Settings that only the whole model has (special
  /// tokens, how weights are stored) are kept.
  static TextPart take(nlohmann::json& config);

  bool is_part() const { return is_part_; }
  /// Returns the language model's name of a stored tensor. "": the tensor belongs to another part, and is counted for
  /// left_out().
  std::string name_of(std::string_view stored);
  /// Returns "439 tensors of model.vision_tower and model.multi_modal_projector", or "".
  std::string left_out() const;

 private:
  bool is_part_ = false;
  std::map<std::string, int64_t> others_;  ///< number of tensors by module
};

}  // namespace redline
