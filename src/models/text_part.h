// The language model inside a folder of a multimodal model.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

/// Such a folder has the settings of its language model in "text_config" and that model's tensors under a prefix,
/// "language_model." or "model.language_model.".
class TextPart {
 public:
  /// Replaces `config` by that of the text part if it has one; settings that only the whole model has (special tokens,
  /// how weights are stored) stay.
  static TextPart take(nlohmann::json& config);

  bool is_part() const { return is_part_; }
  /// The language model's own name of a tensor; "": the tensor belongs to another part, which is then counted.
  std::string name_of(std::string_view stored);
  /// "439 tensors of model.vision_tower and model.multi_modal_projector", or "".
  std::string left_out() const;

 private:
  bool is_part_ = false;
  std::map<std::string, int64_t> others_;  ///< number of tensors by module
};

}  // namespace redline
