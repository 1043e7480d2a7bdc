#include "cli/comfy_settings.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/json_text.h"

namespace redline::cli {
namespace {

constexpr int kMaxDepth = 64;  // maximum number of links to follow; in a damaged graph they may form a circle
/// Upper limit of the inputs that all followed links of a graph lead to. A circle of nodes with five links each has
/// 5^kMaxDepth ways around it.
constexpr size_t kMaxLinkedInputs = 1'000'000;

/// Nodes that do not affect any option.
constexpr std::string_view kNeutral[] = {"VAEDecode",
                                         "VAEDecodeTiled",
                                         "SaveImage",
                                         "PreviewImage",
                                         "VAELoader",
                                         "CLIPLoader",
                                         "Note",
                                         "DualCLIPLoader",
                                         "TripleCLIPLoader",
                                         "PrimitiveNode",
                                         "PrimitiveString",
                                         "PrimitiveInt",
                                         "Reroute",
                                         "MarkdownNote",
                                         "SaveImageWebsocket",
                                         "SaveAnimatedWEBP",
                                         "PrimitiveStringMultiline"};

class ComfyGraph {
 public:
  ComfyGraph(const Json& nodes, ReadSettings& read) : nodes_(nodes), read_(read) {
    for (const auto& [id, node] : nodes_.items()) by_id_.emplace(id, &node);
  }

  void run() {
    for (const char* type : {"KSampler", "KSamplerAdvanced", "SamplerCustomAdvanced"})
      for (const auto& [id, node] : nodes_.items())
        if (read_.options.empty() && type_of(node) == type) take_node(id, node);
    if (!read_.options.empty()) name_others();
  }

 private:
  static std::string type_of(const Json& node) {
    const auto type = node.is_object() ? node.find("class_type") : node.end();
    return node.is_object() && type != node.end() && type->is_string() ? type->get<std::string>() : "";
  }

  /// Returns an input of a node; nullptr: it has no input of that name.
  const Json* input(const Json& node, const char* name) const {
    const auto inputs = node.find("inputs");
    if (inputs == node.end() || !inputs->is_object()) return nullptr;
    const auto found = inputs->find(name);
    return found == inputs->end() || found->is_null() ? nullptr : &*found;
  }

  /// Returns the node to which a link such as ["6", 0] leads; nullptr: `value` is not a link.
  const Json* linked(const Json* value) {
    if (!value || !value->is_array() || value->empty() || !(*value)[0].is_string()) return nullptr;
    const auto found = by_id_.find((*value)[0].get_ref<const std::string&>());
    if (found == by_id_.end() || !found->second->is_object()) return nullptr;
    const auto inputs = found->second->find("inputs");
    const size_t cost = 1 + (inputs == found->second->end() ? 0 : inputs->size());
    if (cost > inputs_left_) return nullptr;
    inputs_left_ -= cost;
    used_.insert(found->first);
    return found->second;
  }

  /// Returns a value, or the value of the primitive node to which it is linked.
  const Json* value_of(const Json* value, int depth = 0) {
    const Json* node = depth < kMaxDepth ? linked(value) : nullptr;
    if (!node) return value && !value->is_array() ? value : nullptr;
    for (const char* name : {"value", "text", "string", "seed", "noise_seed"})
      if (const Json* found = value_of(input(*node, name), depth + 1)) return found;
    return nullptr;
  }

  void take(const Json& node, const char* name, const char* option) {
    const Json* value = value_of(input(node, name));
    if (value && (value->is_number() || value->is_string())) read_.options[option] = *value;
  }

  void take_node(const std::string& id, const Json& sampler) {
    used_.insert(id);
    take(sampler, "seed", "seed");
    take(sampler, "noise_seed", "seed");
    take(sampler, "steps", "steps");
    take(sampler, "cfg", "cfg-scale");
    std::string name = text(sampler, "sampler_name"), schedule = text(sampler, "scheduler");
    if (const Json* noise = linked(input(sampler, "noise"))) take(*noise, "noise_seed", "seed");
    const Json* guider = linked(input(sampler, "guider"));
    if (guider) take(*guider, "cfg", "cfg-scale");
    if (const Json* select = linked(input(sampler, "sampler"))) name = text(*select, "sampler_name");
    const Json* sigmas = linked(input(sampler, "sigmas"));
    if (sigmas) {
      take(*sigmas, "steps", "steps");
      schedule = text(*sigmas, "scheduler");
    }
    const Json& prompts = guider ? *guider : sampler;
    for (const char* positive : {"positive", "conditioning"}) take_prompt(input(prompts, positive), "PROMPT");
    take_prompt(input(prompts, "negative"), "negative");
    take_latents(linked(input(sampler, "latent_image")));
    take_strength(sigmas ? *sigmas : sampler);
    for (const char* key : {"start_at_step", "end_at_step", "add_noise"})
      if (const Json* value = input(sampler, key); value && *value != 0 && *value != 10000 && *value != "enable")
        read_.left_out.push_back(fmt::format("{}: {}", key, value->dump()));
    // "simple" is the usual schedule of flow models, and "normal" that of other models.
    take_sampler(name, schedule == "simple" ? "" : schedule, "sampler_name", "scheduler", read_);
  }

  std::string text(const Json& node, const char* name) {
    const Json* value = value_of(input(node, name));
    return value && value->is_string() ? value->get<std::string>() : "";
  }

  /// Takes the text of the encoder from which a conditioning comes, and the guidance of the nodes between the two.
  void take_prompt(const Json* link, const char* option) {
    const Json* node = linked(link);
    for (int depth = 0; node && depth < kMaxDepth; ++depth) {
      const std::string type = type_of(*node);
      if (type == "FluxGuidance") take(*node, "guidance", "guidance");
      for (const char* name : {"text", "text_g", "t5xxl", "clip_l"})
        if (const Json* value = value_of(input(*node, name)); value && value->is_string()) {
          read_.options[option] = *value;
          return;
        }
      if (type != "FluxGuidance" && type != "Reroute") {
        read_.left_out.push_back(type);
        if (type == "ConditioningZeroOut") return;
      }
      const Json* next = input(*node, "conditioning");
      node = linked(next ? next : input(*node, "conditioning_1"));
    }
  }

  void take_latents(const Json* node) {
    if (!node) return;
    take(*node, "width", "width");
    take(*node, "height", "height");
    if (const Json* batch = input(*node, "batch_size"); batch && *batch != 1)
      read_.left_out.push_back(fmt::format("batch_size: {}", batch->dump()));
    if (const Json* image = linked(input(*node, "pixels")))
      read_.left_out.push_back(fmt::format("initial image: {}", text(*image, "image")));
  }

  /// Lists the strength as left out: it has no meaning without the initial image, which is a file of its own.
  void take_strength(const Json& node) {
    if (const Json* denoise = input(node, "denoise"); denoise && denoise->is_number() && *denoise != 1)
      read_.left_out.push_back(fmt::format("denoise: {}", denoise->dump()));
  }

  /// Lists the nodes that correspond to no option.
  void name_others() {
    std::set<std::string> named;
    for (const auto& [id, node] : nodes_.items()) {
      const std::string type = type_of(node);
      if (type.empty() || used_.contains(id) ||
          std::find(std::begin(kNeutral), std::end(kNeutral), type) != std::end(kNeutral))
        continue;
      std::string what = type;
      for (const char* name : {"lora_name", "ckpt_name", "unet_name", "control_net_name", "stop_at_clip_layer"})
        if (const Json* value = input(node, name); value && !value->is_array())
          what = fmt::format("{}: {}", type, value->is_string() ? value->get<std::string>() : value->dump());
      if (named.insert(what).second) read_.left_out.push_back(what);
    }
  }

  const Json& nodes_;
  ReadSettings& read_;
  /// index of nodes_, because a search in nodes_ would visit all of them
  std::unordered_map<std::string, const Json*> by_id_;
  std::set<std::string> used_;
  size_t inputs_left_ = kMaxLinkedInputs;
};

}  // namespace

ReadSettings parse_comfy_prompt(const std::string& text) {
  ReadSettings read;
  const Json nodes = parse_json_or_discard<Json>(text);
  if (nodes.is_object()) ComfyGraph(nodes, read).run();
  return read;
}

}  // namespace redline::cli
