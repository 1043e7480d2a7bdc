#include "chat/tool_call_grammar.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_text.h"
#include "chat/chat_output.h"
#include "chat/tool_call_parts.h"
#include "constraints/json_schema.h"
#include "constraints/json_string.h"
#include "constraints/lark.h"
#include "constraints/regex_syntax.h"
#include "text/unicode.h"

namespace redline {
namespace {

using tool_calls::OrderedJson;
using Expr = Grammar::Expr;

/// Returns the syntax in which the model writes its calls, out of those that the parser accepts for its family.
const ToolCallSyntax& syntax_of(const ChatOutputFormat& format, std::string_view chat_template) {
  const ToolCallSyntax* best = &format.syntaxes[0];
  for (const ToolCallSyntax& syntax : format.syntaxes) {
    if (!syntax.read || syntax.only_tools) continue;
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
  /// `text`: a grammar to which the calls are added.
  ToolCallGrammar(const ToolCallRules& rules, const TokenTrie& trie, CompileDeadline& deadline, Grammar text = {})
      : rules_(rules), trie_(trie), deadline_(deadline), format_(tool_call_format(rules.chat_template)),
        syntax_(syntax_of(format_, rules.chat_template)), g_(std::move(text)) {}

  Result<Grammar> calls() {
    REDLINE_ASSIGN(const Expr answer, any_calls());
    return answer_of({answer}, true);
  }

  Result<Grammar> calls_or_text(ContentKind kind) {
    std::vector<Expr> answers = {g_.sequence({literal(format_.answer_begin), g_.call(g_.root), may_end()})};
    if (!rules_.tools_json.empty()) {
      REDLINE_ASSIGN(const Expr calls, any_calls());
      answers.push_back(calls);
    }
    return answer_of(std::move(answers), kind == ContentKind::kJson);
  }

 private:
  Result<Grammar> answer_of(std::vector<Expr> answers, bool spaces_are_free) {
    const Grammar::Rule root = g_.add_rule("answer");
    g_.define(root, g_.sequence({reasoning(spaces_are_free), g_.choice(std::move(answers))}));
    g_.root = root;
    return std::move(g_);
  }

  Result<Expr> any_calls() {
    const OrderedJson tools = parse_json_or_discard<OrderedJson>(rules_.tools_json);
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
      Result<std::optional<Grammar>> input = input_of(function);
      if (!input.ok()) return Status(input.status()).within(fmt::format("tool {}", t.name));
      t.input = std::move(*input);
      if (t.input)
        t.parameters = {{"type", "object"}, {"properties", {{kInput, {{"type", "string"}}}}}, {"required", {kInput}}};
      if (t.parameters.is_object() && t.parameters.empty())
        t.parameters = {{"type", "object"}, {"properties", OrderedJson::object()}, {"additionalProperties", false}};
      if (t.parameters.is_object() && !t.parameters.contains("type")) t.parameters["type"] = "object";
      t.schema = t.parameters.dump();
      Result<Expr> call = call_of(t);
      if (!call.ok()) return Status(call.status()).within(fmt::format("tool {}", t.name));
      one.push_back(*call);
    }
    return all_calls(g_.choice(std::move(one)));
  }

  struct Tool {
    std::string name, schema;
    OrderedJson parameters;
    std::optional<Grammar> input;  ///< grammar that the parameter "input" must match
  };
  static constexpr std::string_view kInput = "input";

  /// Returns the grammar of a function that stands for a custom tool, from its {"format": {"type": "grammar", "syntax":
  /// "lark", "definition": ..}}.
  Result<std::optional<Grammar>> input_of(const OrderedJson& function) {
    const OrderedJson none = OrderedJson::object();
    const auto member = [&](const OrderedJson& object, const char* name) -> const OrderedJson& {
      return object.is_object() && object.contains(name) ? object[name] : none;
    };
    const OrderedJson& format = member(function, "format");
    if (member(format, "type") != "grammar") return std::optional<Grammar>();
    const OrderedJson& holder = member(format, "grammar").empty() ? format : member(format, "grammar");
    const OrderedJson &syntax = member(holder, "syntax"), &definition = member(holder, "definition");
    if (!definition.is_string()) return invalid_argument("format: a grammar has a definition, which is a text");
    const std::string& text = definition.get_ref<const std::string&>();
    if (syntax == "lark") {
      REDLINE_ASSIGN(Grammar grammar, parse_lark(text, deadline_));
      return std::optional<Grammar>(std::move(grammar));
    }
    if (syntax != "regex") return invalid_argument("format: the syntax of a grammar is \"lark\" or \"regex\"");
    REDLINE_ASSIGN(const RegexSyntax regex, RegexSyntax::parse(text));
    Grammar grammar;
    grammar.root = grammar.add_rule("input");
    REDLINE_ASSIGN(const Expr whole, regex.whole(grammar, deadline_));
    grammar.define(grammar.root, whole);
    return std::optional<Grammar>(std::move(grammar));
  }
  using Reader = ToolCallSyntax::Read;

  // Texts with special tokens --------------------------------------------------------------------------------------

  /// Returns an expression for `text`. Names of special tokens in it match these tokens, because the vocabulary has no
  /// text for them.
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

  /// Returns an expression for every text that contains none of `markers`. `not_first`: characters with which it does
  /// not begin. Equal texts share a rule.
  Expr text_without(const std::vector<std::string_view>& markers, const CharSet& not_first = {}) {
    std::string key;
    for (const CharRange& range : not_first) key += fmt::format("{}-{} ", range.lo, range.hi);
    for (const std::string_view marker : markers) key += fmt::format("{} {}", marker.size(), marker);
    const auto [found, is_new] = texts_.try_emplace(std::move(key), 0);
    if (is_new) {
      found->second = g_.add_rule("a text");
      g_.define(found->second, text_graph(markers, not_first));
    }
    return g_.call(found->second);
  }

  Expr text_graph(const std::vector<std::string_view>& markers, const CharSet& not_first) {
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
    // A state is the longest end of the text with which a marker begins (Aho and Corasick 1975).
    std::map<std::u32string, uint32_t> states = {{U"", 0}};
    std::vector<std::u32string> order = {U""};
    std::set<char32_t> known;
    for (const std::u32string& stop : stops) known.insert(stop.begin(), stop.end());
    CharSet others = {{0, kMaxChar}};
    for (const char32_t c : known) others = intersect(others, complement({{c, c}}));
    // If some characters cannot be the first, the start is a state of its own, with the edges of state "" for the
    // others.
    const uint32_t offset = not_first.empty() ? 0 : 1;
    Grammar::Graph graph;
    graph.num_states = 1 + offset;
    const CharSet may_begin = complement(not_first);
    if (offset > 0) graph.accepts.push_back(0);
    const auto add = [&](uint32_t state, const CharSet& chars, uint32_t next) {
      graph.add(state + offset, g_.chars(chars), next + offset);
      if (state != 0 || offset == 0) return;
      if (const CharSet first = intersect(chars, may_begin); !first.empty())
        graph.add(0, g_.chars(first), next + offset);
    };
    for (size_t i = 0; i < order.size(); ++i) {
      const auto from = static_cast<uint32_t>(i);
      graph.accepts.push_back(from + offset);
      add(from, others, 0);
      for (const char32_t c : known) {
        std::u32string text = order[i] + c;
        const auto ends_with = [&](const std::u32string& stop) {
          return text.size() >= stop.size() && text.compare(text.size() - stop.size(), stop.size(), stop) == 0;
        };
        if (std::any_of(stops.begin(), stops.end(), ends_with)) continue;
        const auto begins = [&](const std::u32string& stop) { return stop.compare(0, text.size(), text) == 0; };
        while (!text.empty() && std::none_of(stops.begin(), stops.end(), begins)) text.erase(0, 1);
        const auto [state, is_new] = states.try_emplace(text, static_cast<uint32_t>(order.size()));
        if (is_new) {
          graph.add_state();
          order.push_back(text);
        }
        add(from, {{c, c}}, state->second);
      }
    }
    return g_.graph(std::move(graph));
  }

  // Around the calls -------------------------------------------------------------------------------------------------

  Expr spaces() { return g_.repeat(g_.chars({{' ', ' '}, {'\n', '\n'}}), 0, 4); }

  /// Returns an expression for the reasoning before a call, or for what is left of it after the prompt.
  /// `spaces_are_free`: the parser drops any white space between the reasoning and what follows it.
  Expr reasoning(bool spaces_are_free) {
    const AnswerPlace place = answer_place(rules_.chat_template, rules_.prompt);
    const ReasoningMarkers markers = reasoning_markers(rules_.chat_template);
    const Expr head = g_.bytes(format_.has_channels && place != AnswerPlace::kHeader ? "<|start|>assistant" : "");
    if (!*markers.open || place == AnswerPlace::kContent) return head;
    // In these formats, white space between the parts would be content.
    const bool is_structured = *markers.header || format_.has_channels;
    const Expr space = is_structured ? g_.empty() : spaces_are_free ? spaces() : g_.bytes(markers.separator);
    std::vector<std::string_view> ends = {markers.close};
    if (format_.has_channels) ends = {markers.close, "<|channel|>", "<|start|>", "<|eom|>", "<|return|>", "<|call|>"};
    const Expr rest = g_.sequence({text_without(ends), literal(markers.close), literal(markers.header), space});
    if (place == AnswerPlace::kReasoning) return rest;
    const Expr before = is_structured ? g_.empty() : spaces();
    return g_.sequence({head, g_.optional(g_.sequence({before, literal(markers.open), rest}))});
  }

  Expr may_end() { return *format_.answer_end ? g_.optional(literal(format_.answer_end)) : g_.empty(); }

  Expr all_calls(Expr one) {
    const std::string_view separator = syntax_.writes_list ? ", " : "\n";
    // Without an opening marker there can be only one call.
    const bool can_repeat = rules_.allows_several && !format_.has_channels && (syntax_.writes_list || *syntax_.begin);
    if (can_repeat) {
      const Grammar::Rule rule = g_.add_rule("a call");  // a rule, because it stands twice in the expression
      g_.define(rule, one);
      one = g_.call(rule);
      one = g_.sequence({one, g_.repeat(g_.sequence({g_.bytes(separator), one}), 0, Grammar::kUnbounded)});
    }
    if (syntax_.writes_list)
      one = g_.sequence({literal(syntax_.begin), g_.bytes("["), one, g_.bytes("]"), literal(syntax_.end)});
    return g_.sequence({literal(format_.calls_begin), one, literal(format_.calls_end)});
  }

  // One call ---------------------------------------------------------------------------------------------------------

  /// Returns an expression for the JSON of the parameters, or of the part of their schema that `pointer` names.
  Result<Expr> json_of(const Tool& tool, const std::string& pointer = "") {
    if (tool.input) {
      const Expr text = g_.sequence({g_.bytes("\""), g_.embed(*tool.input, true), g_.bytes("\"")});
      if (!pointer.empty()) return text;
      return g_.sequence({g_.bytes(fmt::format("{{\"{}\": ", kInput)), text, g_.bytes("}")});
    }
    REDLINE_ASSIGN(const Grammar::Rule rule, add_json_schema(g_, tool.schema, pointer, rules_.json, deadline_));
    return g_.call(rule);
  }

  Result<Expr> call_of(const Tool& tool) {
    if (format_.has_channels) {
      if (*format_.channel_call) {
        REDLINE_ASSIGN(const Expr call, xml_call(tool));
        return g_.sequence({literal(fmt::format(" to={}<|message|>", tool.name)), call});
      }
      REDLINE_ASSIGN(const Expr arguments, json_of(tool));
      return g_.sequence({literal("<|channel|>commentary to=functions." + tool.name + " "),
                          literal("<|constrain|>json<|message|>"), arguments});
    }
    const Reader read = syntax_.read;
    const bool writes_json_list =
        syntax_.begin == std::string_view("[TOOL_CALLS]") &&
        rules_.chat_template.find("[ARGS]") == std::string_view::npos;  // earlier templates of Mistral lack it
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
    if (read == read_nested_xml) return nested_xml(tool);
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
    const auto tagged = [&](const std::string& name, std::string_view type, Expr value) {
      return g_.sequence({literal(fmt::format("{}{}{}{}{}", parameter, name, type, close_tag, space)), value,
                          literal(fmt::format("{}{}{}", space, syntax_.parameter_end, break_line))});
    };
    const auto member = [&](const std::string& name) -> Result<Expr> {
      REDLINE_ASSIGN(const PlainValue value, plain_value(tool, name, {syntax_.parameter_end}, !has_types));
      if (!has_types) return tagged(name, "", value.any);
      std::vector<Expr> forms;
      if (value.text) forms.push_back(tagged(name, "\" string=\"true", *value.text));
      if (value.json) forms.push_back(tagged(name, "\" string=\"false", *value.json));
      return g_.choice(std::move(forms));
    };
    REDLINE_ASSIGN(const Expr arguments, members(tool, "", member));
    const Expr call = g_.sequence({literal(std::string(open) + tool.name + std::string(close_tag)),
                                   g_.bytes(break_line), arguments, literal(syntax_.second)});
    if (starts_open) return call;
    return g_.sequence({literal(syntax_.begin), g_.bytes("\n"), call, g_.bytes("\n"), literal(syntax_.end)});
  }

  /// Returns an expression for nested XML. Lists and objects in it are written as JSON, which the parser takes as well
  /// as elements.
  Result<Expr> nested_xml(const Tool& tool) {
    const std::string_view first = syntax_.first;
    const auto member = [&](const std::string& name) -> Result<Expr> {
      const std::string end = fmt::format("</{}>", name);
      REDLINE_ASSIGN(const PlainValue value, plain_value(tool, name, {first, end}, true, {{'<', '<'}}));
      return g_.sequence(
          {literal(fmt::format("{}<{}>", first, name)), value.any, literal(fmt::format("{}{}", first, end))});
    };
    REDLINE_ASSIGN(const Expr arguments, members(tool, "", member));
    return g_.sequence({literal(syntax_.begin), literal(fmt::format("{}<invoke name=\"{}\">", first, tool.name)),
                        arguments, literal(fmt::format("{}</invoke>", first)), literal(syntax_.end)});
  }

  Result<Expr> key_value_call(const Tool& tool) {
    const std::string suffix = std::string(syntax_.first) + ">";
    const std::string value_end = "</arg_value" + suffix;
    const auto member = [&](const std::string& name) -> Result<Expr> {
      REDLINE_ASSIGN(const PlainValue value, plain_value(tool, name, {value_end, syntax_.end}, true));
      const std::string key = fmt::format("<arg_key{}{}</arg_key{}\n<arg_value{}", suffix, name, suffix, suffix);
      return g_.sequence({literal(key), value.any, literal(value_end + "\n")});
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

  /// Returns an expression for the properties in their order. Properties that are not required may be left out.
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
    // When i names have been read or passed over, the state is 2 i before any member and 2 i + 1 after one.
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

  /// The values of a parameter without quotes, as ToolSchemas::value() reads them.
  struct PlainValue {
    std::optional<Expr> text, json;  ///< expressions for strings and for the other values; not set if there are none
    Expr any = 0;                    ///< expression for strings and other values together
  };
  /// Returns the expressions for one parameter. `mixes`: a text that can be read as one of the other values is not a
  /// string. `not_first`: characters with which no string begins.
  Result<PlainValue> plain_value(const Tool& tool, const std::string& name, const std::vector<std::string_view>& stops,
                                 bool mixes, CharSet not_first = {}) {
    if (tool.input) {
      PlainValue value;
      value.text = value.any = g_.embed(*tool.input);
      return value;
    }
    const std::string pointer = pointer_to(name);
    REDLINE_ASSIGN(const Expr whole, json_of(tool, pointer));  // reports errors of the schema
    const PlainValueRule rule = plain_value_rule(tool.parameters, tool.parameters["properties"][name]);
    PlainValue value;
    if (rule.has_any_text) {
      const uint8_t others = rule.is_known && mixes ? rule.types & ~kStringBit : 0;
      if (others & kObjectBit) not_first.push_back({'{', '{'});
      if (others & kArrayBit) not_first.push_back({'[', '['});
      if (others & (kIntegerBit | kNumberBit)) {
        not_first.push_back({'0', '9'});
        not_first.push_back({'-', '-'});
      }
      if (!not_first.empty())
        for (const char c : tool_calls::kSpaces)
          not_first.push_back({static_cast<uint8_t>(c), static_cast<uint8_t>(c)});
      value.text = text_without(stops, normalized(not_first));
    } else if (!rule.texts.empty()) {
      value.text = g_.choice_of_texts(rule.texts);
    }
    if (rule.is_known && !value.text) {
      value.json = whole;
    } else if (rule.others && (rule.is_known || !mixes)) {
      OrderedJson parameters = tool.parameters;
      parameters["properties"][name] = *rule.others;
      REDLINE_ASSIGN(const Grammar::Rule others,
                     add_json_schema(g_, parameters.dump(), pointer, rules_.json, deadline_));
      value.json = g_.call(others);
    }
    std::vector<Expr> forms;
    for (const std::optional<Expr>& form : {value.text, value.json})
      if (form) forms.push_back(*form);
    value.any = g_.choice(std::move(forms));
    return value;
  }

  const ToolCallRules& rules_;
  const TokenTrie& trie_;
  CompileDeadline& deadline_;
  const ChatOutputFormat& format_;
  const ToolCallSyntax& syntax_;
  Grammar g_;
  std::map<std::string, Grammar::Rule> texts_;  ///< rules of text_without(), by their arguments
};

}  // namespace

Result<Grammar> grammar_of_tool_calls(const ToolCallRules& rules, const TokenTrie& trie, CompileDeadline& deadline) {
  return ToolCallGrammar(rules, trie, deadline).calls();
}

Result<Grammar> grammar_of_answer(const ToolCallRules& rules, Grammar text, ContentKind kind, const TokenTrie& trie,
                                  CompileDeadline& deadline) {
  return ToolCallGrammar(rules, trie, deadline, std::move(text)).calls_or_text(kind);
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
