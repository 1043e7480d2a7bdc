#include "chat/tool_call_grammar.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "chat/chat_output.h"
#include "chat/tool_call_parts.h"
#include "constraints/json_schema.h"
#include "constraints/json_string.h"
#include "text/unicode.h"

namespace redline {
namespace {

using tool_calls::OrderedJson;
using Expr = Grammar::Expr;

/// The syntax that a family writes, among those that it reads.
const ToolCallSyntax& syntax_of(const ChatOutputFormat& format, std::string_view chat_template) {
  const ToolCallSyntax* best = &format.syntaxes[0];
  for (const ToolCallSyntax& syntax : format.syntaxes) {
    if (!syntax.read) continue;
    if (!*syntax.begin) return syntax;
    if (chat_template.find(best->begin) == std::string::npos) best = &syntax;
  }
  return *best;
}

bool is_identifier(std::string_view name) {
  return !name.empty() &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
}

class ToolCallGrammar {
 public:
  ToolCallGrammar(const ToolCallRules& rules, const TokenTrie& trie, CompileDeadline& deadline)
      : rules_(rules), trie_(trie), deadline_(deadline), format_(tool_call_format(rules.chat_template)),
        syntax_(syntax_of(format_, rules.chat_template)) {}

  Result<Grammar> compile() {
    const OrderedJson tools = OrderedJson::parse(rules_.tools_json.begin(), rules_.tools_json.end(), nullptr, false);
    if (!tools.is_array() || tools.empty()) return invalid_argument("tools: they must be a list of functions");
    std::vector<Expr> one;
    for (const OrderedJson& tool : tools) {
      const OrderedJson& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
      if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
        return invalid_argument("tools: a function has no name");
      Tool t;
      t.name = function["name"].get<std::string>();
      t.parameters = function.value("parameters", OrderedJson::object());
      if (t.name.find_first_of(" \t\r\n{}[]()\"<>") != std::string::npos)
        return invalid_argument("tools: the name \"{}\" has characters that no call can have", t.name);
      if (t.parameters.is_object() && t.parameters.empty())
        t.parameters = {{"type", "object"}, {"properties", OrderedJson::object()}, {"additionalProperties", false}};
      if (t.parameters.is_object() && !t.parameters.contains("type")) t.parameters["type"] = "object";
      t.schema = t.parameters.dump();
      Result<Expr> call = call_of(t);
      if (!call.ok()) return Status(call.status()).within(fmt::format("tool {}", t.name));
      one.push_back(*call);
    }
    g_.root = g_.add_rule("root");
    g_.define(g_.root, g_.sequence({reasoning(), all_calls(g_.choice(std::move(one)))}));
    return std::move(g_);
  }

 private:
  struct Tool {
    std::string name, schema;
    OrderedJson parameters;
  };
  using Reader = ToolCallSyntax::Read;

  // Texts with special tokens --------------------------------------------------------------------------------------

  /// Special tokens among the characters are those tokens: their text is not text to a vocabulary.
  Expr literal(std::string_view text) {
    std::vector<Expr> parts;
    size_t plain = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '<' && text[at] != '[') continue;
      const size_t end = text.find(text[at] == '<' ? '>' : ']', at);
      if (end == std::string_view::npos) break;
      const TokenId id = trie_.find_name(text.substr(at, end + 1 - at));
      if (id < 0 || !trie_.text(id).empty()) continue;
      parts.push_back(g_.bytes(text.substr(plain, at - plain)));
      // A token that ends the text ends the call as well.
      parts.push_back(trie_.is_end(id) ? g_.empty() : g_.token(id, false));
      at = end;
      plain = end + 1;
    }
    parts.push_back(g_.bytes(text.substr(plain)));
    return g_.sequence(std::move(parts));
  }
  bool is_special(std::string_view text) const {
    const TokenId id = trie_.find_name(text);
    return id >= 0 && trie_.text(id).empty();
  }

  /// Any characters among which none of these texts is.
  Expr text_without(const std::vector<std::string_view>& markers) {
    std::vector<std::u32string> stops;
    for (const std::string_view marker : markers) {
      if (marker.empty() || is_special(marker)) continue;  // a special token is not text
      std::u32string stop;
      for (size_t at = 0; at < marker.size();) {
        const Utf8Char c = utf8_at(marker, at);
        stop.push_back(static_cast<char32_t>(c.value));
        at += c.bytes;
      }
      stops.push_back(std::move(stop));
    }
    // States: the longest end of the text that a marker begins with (Aho and Corasick 1975).
    std::map<std::u32string, uint32_t> states = {{U"", 0}};
    std::vector<std::u32string> order = {U""};
    std::set<char32_t> known;
    for (const std::u32string& stop : stops) known.insert(stop.begin(), stop.end());
    CharSet others = {{0, kMaxChar}};
    for (const char32_t c : known) others = intersect(others, complement({{c, c}}));
    Grammar::Graph graph;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto from = static_cast<uint32_t>(i);
      graph.accepts.push_back(from);
      graph.add(from, g_.chars(others), 0);
      for (const char32_t c : known) {
        std::u32string text = order[i] + c;
        const auto ends_with = [&](const std::u32string& stop) {
          return text.size() >= stop.size() && text.compare(text.size() - stop.size(), stop.size(), stop) == 0;
        };
        if (std::any_of(stops.begin(), stops.end(), ends_with)) continue;
        const auto begins = [&](const std::u32string& stop) { return stop.compare(0, text.size(), text) == 0; };
        while (!text.empty() && std::none_of(stops.begin(), stops.end(), begins)) text.erase(0, 1);
        const auto [state, is_new] = states.try_emplace(text, graph.num_states);
        if (is_new) {
          graph.add_state();
          order.push_back(text);
        }
        graph.add(from, g_.chars({{c, c}}), state->second);
      }
    }
    return g_.graph(std::move(graph));
  }

  // Around the calls -------------------------------------------------------------------------------------------------

  Expr spaces() { return g_.repeat(g_.chars({{' ', ' '}, {'\n', '\n'}}), 0, 4); }

  Expr reasoning() {
    const AnswerPlace place = answer_place(rules_.chat_template, rules_.prompt);
    if (format_.has_channels) {
      const Expr analysis = g_.sequence(
          {literal("<|channel|>analysis<|message|>"), text_without({"<|end|>"}), literal("<|end|><|start|>assistant")});
      return g_.sequence({place == AnswerPlace::kHeader ? g_.empty() : literal("<|start|>assistant"),
                          is_special("<|end|>") ? g_.optional(analysis) : g_.empty()});
    }
    const ReasoningMarkers markers = reasoning_markers(rules_.chat_template);
    if (!*markers.open) return g_.empty();
    const Expr rest = g_.sequence({text_without({markers.close}), literal(markers.close), spaces()});
    if (place == AnswerPlace::kReasoning) return rest;
    return g_.optional(g_.sequence({literal(markers.open), rest}));
  }

  Expr all_calls(Expr one) {
    const std::string_view separator = syntax_.writes_list ? ", " : "\n";
    // Without a marker there is one call.
    const bool can_repeat = rules_.allows_several && !format_.has_channels && (syntax_.writes_list || *syntax_.begin);
    if (can_repeat)
      one = g_.sequence({one, g_.repeat(g_.sequence({g_.bytes(separator), one}), 0, Grammar::kUnbounded)});
    if (syntax_.writes_list)
      one = g_.sequence({literal(syntax_.begin), g_.bytes("["), one, g_.bytes("]"), literal(syntax_.end)});
    return g_.sequence({literal(format_.calls_begin), one, literal(format_.calls_end)});
  }

  // One call ---------------------------------------------------------------------------------------------------------

  /// JSON of the parameters, or of the part that a pointer names.
  Result<Expr> json_of(const Tool& tool, const std::string& pointer = "") {
    REDLINE_ASSIGN(const Grammar::Rule rule, add_json_schema(g_, tool.schema, pointer, rules_.json, deadline_));
    return g_.call(rule);
  }

  Result<Expr> call_of(const Tool& tool) {
    if (format_.has_channels) {
      if (*format_.channel_call) return refused();
      REDLINE_ASSIGN(const Expr arguments, json_of(tool));
      return g_.sequence({literal("<|channel|>commentary to=functions." + tool.name + " "),
                          literal("<|constrain|>json<|message|>"), arguments});
    }
    const Reader read = syntax_.read;
    const bool writes_json_list =
        syntax_.begin == std::string_view("[TOOL_CALLS]") &&
        rules_.chat_template.find("[ARGS]") == std::string_view::npos;  // earlier ones of Mistral
    if (read == read_json_calls) return json_call(tool);
    if (writes_json_list) {
      REDLINE_ASSIGN(const Expr arguments, json_of(tool));
      return g_.sequence({literal(syntax_.begin), g_.bytes(" [{\"name\": "), g_.bytes(spell_json_string(tool.name)),
                          g_.bytes(", \"arguments\": "), arguments, g_.bytes("}]")});
    }
    if (read == read_keyed_calls) {
      REDLINE_ASSIGN(const Expr arguments, json_of(tool));
      return g_.sequence({literal(syntax_.begin), g_.bytes("[{"), g_.bytes(spell_json_string(tool.name)),
                          g_.bytes(": "), arguments, g_.bytes("}]"), literal(syntax_.end)});
    }
    if (read == read_named_json) return named_json(tool);
    if (read == read_xml_calls) return xml_call(tool);
    if (read == read_key_value_call) return key_value_call(tool);
    if (read == read_python_calls) return python_call(tool);
    if (read == read_gemma_call) {
      REDLINE_ASSIGN(const Expr arguments, json_of(tool));
      return g_.sequence({literal(syntax_.begin + tool.name), arguments, literal(syntax_.end)});
    }
    return refused();
  }
  Status refused() const { return unsupported("calls in the format \"{}\" cannot be demanded", format_.name); }

  Result<Expr> json_call(const Tool& tool) {
    REDLINE_ASSIGN(const Expr arguments, json_of(tool));
    const auto name_or = [](const char* given, const char* otherwise) { return *given ? given : otherwise; };
    const Expr object =
        g_.sequence({g_.bytes(fmt::format("{{\"{}\": {}, \"{}\": ", name_or(syntax_.second, "name"),
                                          spell_json_string(tool.name), name_or(syntax_.first, "arguments"))),
                     arguments, g_.bytes("}")});
    if (syntax_.writes_list) return object;
    const std::string_view space = *syntax_.end ? "\n" : "";
    return g_.sequence({literal(syntax_.begin), g_.bytes(space), object, g_.bytes(space), literal(syntax_.end)});
  }

  Result<Expr> named_json(const Tool& tool) {
    REDLINE_ASSIGN(const Expr arguments, json_of(tool));
    const std::string_view first = syntax_.first, second = syntax_.second;
    Expr name = g_.bytes(tool.name);
    if (first == "<|tool_call_argument_begin|>")
      name = g_.sequence({g_.bytes("functions." + tool.name + ":"), g_.chars({{'0', '9'}})});
    if (second == "<｜tool▁sep｜>") name = g_.sequence({literal("function<｜tool▁sep｜>"), name});
    if (second == "<|tool_call:name|>")
      name = g_.sequence({g_.repeat(g_.chars({{'a', 'z'}, {'0', '9'}}), 9, 9), literal(second), name});
    return g_.sequence({literal(syntax_.begin), name, literal(first), arguments,
                        g_.bytes(first.ends_with("```json\n") ? "\n```" : ""), literal(syntax_.end)});
  }

  Result<Expr> python_call(const Tool& tool) {
    const auto member = [&](const std::string& name) -> Result<Expr> {
      if (!is_identifier(name)) return refused();
      REDLINE_ASSIGN(const Expr value, json_of(tool, pointer_to(name)));
      return g_.sequence({g_.bytes(name + "="), value});
    };
    REDLINE_ASSIGN(const Expr arguments, members(tool, ", ", member));
    return g_.sequence(
        {literal(syntax_.begin), g_.bytes("[" + tool.name + "("), arguments, g_.bytes(")]"), literal(syntax_.end)});
  }

  Result<Expr> xml_call(const Tool& tool) {
    const std::string_view open = syntax_.first, parameter = syntax_.parameter;
    const bool is_quoted = open.ends_with('"');  // <invoke name="f">, or <function=f>
    const bool has_types = parameter.starts_with("<｜DSML｜");
    const std::string_view close_tag = is_quoted ? "\">" : ">", space = is_quoted ? "" : "\n";
    const bool starts_open = std::string_view(syntax_.begin) == open;
    const std::string_view break_line = starts_open ? "" : "\n";
    const auto member = [&](const std::string& name) -> Result<Expr> {
      const bool is_raw = !has_types || is_text(tool, name);
      REDLINE_ASSIGN(const Expr value,
                     is_raw ? plain_value(tool, name, {syntax_.parameter_end}) : json_of(tool, pointer_to(name)));
      std::string tag = fmt::format("{}{}", parameter, name);
      if (has_types) tag += is_raw ? "\" string=\"true" : "\" string=\"false";
      return g_.sequence({literal(fmt::format("{}{}{}", tag, close_tag, space)), value,
                          literal(fmt::format("{}{}{}", space, syntax_.parameter_end, break_line))});
    };
    REDLINE_ASSIGN(const Expr arguments, members(tool, "", member));
    const Expr call = g_.sequence({literal(std::string(open) + tool.name + std::string(close_tag)),
                                   g_.bytes(break_line), arguments, literal(syntax_.second)});
    if (starts_open) return call;
    return g_.sequence({literal(syntax_.begin), g_.bytes("\n"), call, g_.bytes("\n"), literal(syntax_.end)});
  }

  Result<Expr> key_value_call(const Tool& tool) {
    const std::string suffix = std::string(syntax_.first) + ">";
    const std::string value_end = "</arg_value" + suffix;
    const auto member = [&](const std::string& name) -> Result<Expr> {
      REDLINE_ASSIGN(const Expr value, plain_value(tool, name, {value_end, syntax_.end}));
      const std::string key = fmt::format("<arg_key{}{}</arg_key{}\n<arg_value{}", suffix, name, suffix, suffix);
      return g_.sequence({literal(key), value, literal(value_end + "\n")});
    };
    REDLINE_ASSIGN(const Expr arguments, members(tool, "", member));
    return g_.sequence({literal(syntax_.begin), g_.bytes(tool.name + "\n"), arguments, literal(syntax_.end)});
  }

  // Parameters one by one
  // ----------------------------------------------------------------------------------------------

  static std::string pointer_to(const std::string& name) {
    std::string pointer = "/properties/";
    for (const char c : name) pointer += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    return pointer;
  }

  /// The properties in their order; those that are not required may be left out.
  template <class Member>
  Result<Expr> members(const Tool& tool, std::string_view separator, const Member& member) {
    for (const char* key : {"$ref", "allOf", "anyOf", "oneOf", "patternProperties"})
      if (tool.parameters.contains(key))
        return unsupported("{} at the root of the parameters is not supported in the format \"{}\"", key, format_.name);
    const OrderedJson none = OrderedJson::object();
    const OrderedJson& properties = tool.parameters.contains("properties") ? tool.parameters["properties"] : none;
    if (!properties.is_object()) return invalid_argument("properties must be an object");
    std::set<std::string> required;
    if (tool.parameters.contains("required"))
      for (const OrderedJson& name : tool.parameters["required"])
        if (name.is_string()) required.insert(name.get<std::string>());
    for (const std::string& name : required)
      if (!properties.contains(name))
        return unsupported("\"{}\" is required and is not a property: it has no type in the format \"{}\"", name,
                           format_.name);
    // States as in json_schema.cc: 2 i before any member, 2 i + 1 after one, when i names have been read.
    Grammar::Graph graph;
    const auto n = static_cast<uint32_t>(properties.size());
    graph.num_states = 2 * n + 2;
    uint32_t i = 0;
    for (auto property = properties.begin(); property != properties.end(); ++property, ++i) {
      const std::string& name = property.key();
      if (name.find_first_of("<>\"\n") != std::string::npos) return refused();
      REDLINE_ASSIGN(const Expr one, member(name));
      graph.add(2 * i, one, 2 * i + 3);
      graph.add(2 * i + 1, g_.sequence({g_.bytes(separator), one}), 2 * i + 3);
      if (required.contains(name)) continue;
      graph.add(2 * i, g_.empty(), 2 * i + 2);
      graph.add(2 * i + 1, g_.empty(), 2 * i + 3);
    }
    graph.accepts = {2 * n, 2 * n + 1};
    return g_.graph(std::move(graph));
  }

  static bool is_text(const Tool& tool, const std::string& name) {
    const OrderedJson& schema = tool.parameters["properties"][name];
    return schema.is_object() && schema.value("type", OrderedJson()) == "string";
  }

  /// A value without quotes, as ToolSchemas::value() reads it: text where the type is string, else JSON.
  Result<Expr> plain_value(const Tool& tool, const std::string& name, const std::vector<std::string_view>& stops) {
    REDLINE_ASSIGN(const Expr json, json_of(tool, pointer_to(name)));  // finds errors of the schema
    if (!is_text(tool, name)) return json;
    const OrderedJson& schema = tool.parameters["properties"][name];
    std::vector<std::string> choices;
    if (schema.contains("const") && schema["const"].is_string()) choices.push_back(schema["const"].get<std::string>());
    else if (schema.contains("enum") && schema["enum"].is_array())
      for (const OrderedJson& value : schema["enum"])
        if (value.is_string()) choices.push_back(value.get<std::string>());
    if (!choices.empty()) return g_.choice_of_texts(std::move(choices));
    return text_without(stops);
  }

  const ToolCallRules& rules_;
  const TokenTrie& trie_;
  CompileDeadline& deadline_;
  const ChatOutputFormat& format_;
  const ToolCallSyntax& syntax_;
  Grammar g_;
};

}  // namespace

AnswerPlace answer_place(std::string_view chat_template, std::string_view prompt) {
  if (chat_output_format(chat_template).has_channels) {
    const size_t start = prompt.rfind("<|start|>");
    const bool is_header =
        start != std::string_view::npos && prompt.find("<|message|>", start) == std::string_view::npos;
    return is_header ? AnswerPlace::kHeader : AnswerPlace::kAnswer;
  }
  const ReasoningMarkers markers = reasoning_markers(chat_template);
  const auto bare = [](std::string_view text) { return text.substr(0, text.find_last_not_of(" \t\r\n") + 1); };
  return *markers.open && bare(prompt).ends_with(bare(markers.open)) ? AnswerPlace::kReasoning : AnswerPlace::kAnswer;
}

Result<Grammar> grammar_of_tool_calls(const ToolCallRules& rules, const TokenTrie& trie, CompileDeadline& deadline) {
  return ToolCallGrammar(rules, trie, deadline).compile();
}

Result<std::shared_ptr<const Constraint>> compile_tool_calls(const ToolCallRules& rules,
                                                             std::shared_ptr<const TokenTrie> trie,
                                                             const ConstraintLimits& limits) {
  REDLINE_TRY(check_constraint_size(rules.tools_json, limits));
  CompileDeadline deadline(limits);
  REDLINE_ASSIGN(const Grammar grammar, grammar_of_tool_calls(rules, *trie, deadline));
  return Constraint::compile(grammar, std::move(trie), limits, deadline);
}

}  // namespace redline
