// The parser of templates. It has over 600 lines because it is one grammar, whose functions call each other.
#include "chat/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "chat/jinja/builtins.h"
#include "chat/jinja/python_text.h"

namespace redline::jinja {
namespace {

constexpr int kMaxDepth = 400;  ///< greatest depth of an expression, and of nested blocks

struct ParseFailure {};  ///< thrown within this file only; the error is in error_

class Parser {
 public:
  Parser(std::vector<Token> tokens, Evaluation& constants, SyntaxError& error)
      : tokens_(std::move(tokens)), constants_(constants), error_(error) {}

  bool run(Nodes& body) {
    try {
      body = statements({});
      return true;
    } catch (const ParseFailure&) {
      return false;
    }
  }

 private:
  using Words = std::initializer_list<std::string_view>;

  // Tokens ------------------------------------------------------------------------------------------------------------

  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() {
    Token token = std::move(tokens_[at_]);
    tokens_[at_].kind = token.kind;
    tokens_[at_].position = token.position;
    if (token.kind != TokenKind::kEnd) ++at_;
    return token;
  }
  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_name(std::string_view word) const { return is(TokenKind::kName) && now().text == word; }
  bool is_any_name(Words words) const {
    return is(TokenKind::kName) && std::find(words.begin(), words.end(), now().text) != words.end();
  }
  bool skip(TokenKind kind) {
    if (!is(kind)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view word) {
    if (!is_name(word)) return false;
    take();
    return true;
  }
  Token expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) fail(fmt::format("expected {}, got {}", what, describe(now())));
    return take();
  }
  void expect_name(std::string_view word) {
    if (!is_name(word)) fail(fmt::format("expected '{}', got {}", word, describe(now())));
    take();
  }

  [[noreturn]] void fail(std::string message) { fail_at(now().position, std::move(message)); }
  [[noreturn]] void fail_at(Position position, std::string message, Code code = Code::invalid_argument) {
    error_ = {code, std::move(message), position};
    throw ParseFailure();
  }

  /// Counts the nesting of blocks and expressions while it lives, to bound the recursion of this parser.
  struct Level {
    explicit Level(Parser& p) : parser(p) {
      if (++parser.level_ > kMaxDepth) parser.fail("the template is nested too deeply");
    }
    ~Level() { --parser.level_; }
    Parser& parser;
  };

  // Sets the node's depth and finishes it. A chain of operators makes a deep tree without recursion here, so Level does
  // not bound it.
  template <class T>
  NodePtr checked(std::unique_ptr<T> node, std::initializer_list<const Node*> children) {
    for (const Node* child : children)
      if (child) node->depth = std::max(node->depth, child->depth + 1);
    return finish(std::move(node));
  }
  template <class T>
  NodePtr checked(std::unique_ptr<T> node, const Nodes& children) {
    for (const NodePtr& child : children) node->depth = std::max(node->depth, child->depth + 1);
    return finish(std::move(node));
  }
  template <class T>
  NodePtr finish(std::unique_ptr<T> node) {
    if (node->depth > kMaxDepth) fail_at(node->position, "the expression is nested too deeply");
    return node;
  }

  NodePtr constant(Position position, Value value) { return std::make_unique<Constant>(position, value); }

  // Statements --------------------------------------------------------------------------------------------------------

  /// Parses statements up to one of `ends`, which is then the current token. Without `ends`, parses to the end of the
  /// template.
  Nodes statements(Words ends) {
    const Level level(*this);
    Nodes body;
    while (!is(TokenKind::kEnd)) {
      if (is(TokenKind::kData)) {
        Token token = take();
        body.push_back(std::make_unique<Text>(token.position, std::move(token.text)));
      } else if (is(TokenKind::kVariableBegin)) {
        take();
        auto output = std::make_unique<Output>(now().position);
        output->values.push_back(tuple_or_expression());
        expect(TokenKind::kVariableEnd, "'}}'");
        body.push_back(std::move(output));
      } else {
        expect(TokenKind::kBlockBegin, "'{%'");
        if (is_any_name(ends)) return body;
        if (NodePtr node = statement()) body.push_back(std::move(node));
        expect(TokenKind::kBlockEnd, "'%}'");
      }
    }
    if (ends.size() > 0) {
      std::string expected;
      for (const std::string_view end : ends) expected += fmt::format("{}'{}'", expected.empty() ? "" : " or ", end);
      fail_at(open_.back(), fmt::format("this block has no end: expected {}", expected));
    }
    return body;
  }

  /// Parses the end of a block's tag and its body.
  Nodes block(Words ends) {
    skip(TokenKind::kColon);
    expect(TokenKind::kBlockEnd, "'%}'");
    return statements(ends);
  }
  Nodes block_to(std::string_view end) {
    Nodes body = block({end});
    take();
    return body;
  }

  NodePtr statement() {
    if (!is(TokenKind::kName)) fail(fmt::format("expected the name of a tag, got {}", describe(now())));
    struct Open {
      Open(std::vector<Position>& o, Position p) : open(o) { open.push_back(p); }
      ~Open() { open.pop_back(); }
      std::vector<Position>& open;
    } open(open_, now().position);
    using Parse = NodePtr (Parser::*)();
    static constexpr std::pair<std::string_view, Parse> kTags[] = {
        {"for", &Parser::for_loop}, {"if", &Parser::if_block},           {"set", &Parser::set},
        {"macro", &Parser::macro},  {"call", &Parser::call_block},       {"filter", &Parser::filter_block},
        {"with", &Parser::with},    {"generation", &Parser::generation}, {"print", &Parser::print},
        {"break", &Parser::jump},   {"continue", &Parser::jump},
    };
    for (const auto& [name, parse] : kTags)
      if (is_name(name)) return (this->*parse)();
    for (const std::string_view name : {"block", "extends", "include", "import", "from", "autoescape"})
      if (is_name(name))
        fail_at(now().position, fmt::format("the tag '{}' is not supported in chat templates", name),
                Code::unsupported);
    fail(fmt::format("unknown tag '{}'", now().text));
  }

  NodePtr for_loop() {
    auto node = std::make_unique<For>(take().position);
    node->target = target({"in"}, false);
    node->filter_target = copy_of(node->target);
    expect_name("in");
    node->iterable = tuple_or_expression(false, {"recursive"});
    if (skip_name("if")) node->condition = expression();
    node->is_recursive = skip_name("recursive");
    ++loops_;
    node->body = block({"endfor", "else"});
    --loops_;
    if (take().text == "else") node->otherwise = block_to("endfor");
    return node;
  }

  NodePtr if_block() {
    auto node = std::make_unique<If>(take().position);
    for (;;) {
      NodePtr test = tuple_or_expression(false);
      Nodes body = block({"elif", "else", "endif"});
      node->branches.emplace_back(std::move(test), std::move(body));
      const std::string end = take().text;
      if (end == "elif") continue;
      if (end == "else") node->otherwise = block_to("endif");
      return node;
    }
  }

  NodePtr set() {
    const Position position = take().position;
    Target to = target({}, true);
    if (skip(TokenKind::kAssign)) {
      auto node = std::make_unique<Set>(position);
      node->target = std::move(to);
      node->value = tuple_or_expression();
      return node;
    }
    auto node = std::make_unique<SetBlock>(position);
    node->target = std::move(to);
    node->filter = filters(nullptr, false);
    node->body = block_to("endset");
    return node;
  }

  NodePtr macro() {
    auto node = std::make_unique<MacroNode>(NodeKind::kMacro, take().position);
    const Token name = expect(TokenKind::kName, "a name");
    if (is_literal_name(name.text)) fail_at(name.position, fmt::format("cannot assign to '{}'", name.text));
    node->name = name.text;
    signature(*node);
    node->body = function_body("endmacro");
    return node;
  }

  NodePtr call_block() {
    auto node = std::make_unique<MacroNode>(NodeKind::kCallBlock, take().position);
    if (is(TokenKind::kLeftParen)) signature(*node);
    const Position position = now().position;
    node->call = expression();
    if (node->call->kind != NodeKind::kCall) fail_at(position, "expected a call");
    node->body = function_body("endcall");
    return node;
  }

  /// Parses {% generation %} of transformers. Its text goes through a call that returns it unchanged.
  NodePtr generation() {
    auto node = std::make_unique<MacroNode>(NodeKind::kCallBlock, take().position);
    node->body = function_body("endgeneration");
    return node;
  }

  Nodes function_body(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Nodes body = block_to(end);
    loops_ = loops;
    return body;
  }

  NodePtr filter_block() {
    auto node = std::make_unique<FilterBlock>(take().position);
    node->filter = filters(nullptr, true);
    node->body = block_to("endfilter");
    return node;
  }

  NodePtr with() {
    auto node = std::make_unique<With>(take().position);
    while (!is(TokenKind::kBlockEnd)) {
      if (!node->targets.empty()) expect(TokenKind::kComma, "','");
      node->targets.push_back(target({}, false));
      expect(TokenKind::kAssign, "'='");
      node->values.push_back(expression());
    }
    node->body = block_to("endwith");
    return node;
  }

  NodePtr print() {
    auto node = std::make_unique<Output>(take().position);
    while (!is(TokenKind::kBlockEnd)) {
      if (!node->values.empty()) expect(TokenKind::kComma, "','");
      node->values.push_back(expression());
    }
    return node;
  }

  NodePtr jump() {
    const Token token = take();
    if (loops_ == 0) fail_at(token.position, fmt::format("'{}' outside of a loop", token.text));
    return std::make_unique<Jump>(token.text == "break" ? NodeKind::kBreak : NodeKind::kContinue, token.position);
  }

  void signature(MacroNode& node) {
    expect(TokenKind::kLeftParen, "'('");
    while (!is(TokenKind::kRightParen)) {
      if (!node.parameters.empty()) expect(TokenKind::kComma, "','");
      const Token name = expect(TokenKind::kName, "a name");
      if (is_literal_name(name.text)) fail_at(name.position, fmt::format("cannot assign to '{}'", name.text));
      for (const auto& other : node.parameters)
        if (other->name == name.text) fail_at(name.position, fmt::format("parameter '{}' occurs twice", name.text));
      if (skip(TokenKind::kAssign)) {
        node.defaults.push_back(expression());
      } else if (!node.defaults.empty()) {
        fail("a parameter without a default follows one with a default");
      }
      node.parameters.push_back(std::make_unique<Name>(name.position, name.text));
    }
    expect(TokenKind::kRightParen, "')'");
  }

  static bool is_literal_name(std::string_view name) {
    return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" || name == "None";
  }

  /// Parses the target of an assignment: a name, or a tuple of names; ns.name too if `with_attributes`.
  Target target(Words ends, bool with_attributes) {
    const Level level(*this);
    Target whole;
    whole.position = now().position;
    bool is_tuple = false;
    for (;;) {
      if (is(TokenKind::kVariableEnd) || is(TokenKind::kBlockEnd) || is(TokenKind::kRightParen) || is_any_name(ends))
        break;
      whole.items.push_back(one_target(with_attributes));
      if (!skip(TokenKind::kComma)) break;
      is_tuple = true;
    }
    if (is_tuple) {
      whole.form = Target::Form::kTuple;
      return whole;
    }
    if (whole.items.empty()) fail(fmt::format("expected a name to assign to, got {}", describe(now())));
    Target only = std::move(whole.items[0]);
    return only;
  }

  static Target copy_of(const Target& target) {
    Target copy;
    copy.form = target.form;
    copy.position = target.position;
    if (target.name) copy.name = std::make_unique<Name>(target.name->position, target.name->name);
    for (const Target& item : target.items) copy.items.push_back(copy_of(item));
    return copy;
  }

  Target one_target(bool with_attributes) {
    Target one;
    one.position = now().position;
    if (skip(TokenKind::kLeftParen)) {
      // Inside parentheses jinja2 parses expressions; of those only names and tuples can be assigned to.
      const size_t begin = at_;
      one = is(TokenKind::kRightParen) ? Target() : target({}, false);
      if (at_ == begin) one.form = Target::Form::kTuple;
      expect(TokenKind::kRightParen, "')'");
      return one;
    }
    const Token name = expect(TokenKind::kName, "a name to assign to");
    if (is_literal_name(name.text)) fail_at(name.position, fmt::format("cannot assign to '{}'", name.text));
    one.name = std::make_unique<Name>(name.position, name.text);
    if (with_attributes && skip(TokenKind::kDot)) {
      one.form = Target::Form::kAttribute;
      one.attribute = expect(TokenKind::kName, "a name").text;
    }
    return one;
  }

  // Expressions, in jinja2's order of precedence
  // -----------------------------------------------------------------------

  NodePtr expression() { return conditional(); }

  NodePtr tuple_or_expression(bool with_conditional = true, Words ends = {}, bool in_parentheses = false) {
    const Level level(*this);
    const Position position = now().position;
    Nodes items;
    bool is_tuple = false;
    for (;;) {
      if (is(TokenKind::kVariableEnd) || is(TokenKind::kBlockEnd) || is(TokenKind::kRightParen) || is_any_name(ends))
        break;
      items.push_back(with_conditional ? conditional() : logical_or());
      if (!skip(TokenKind::kComma)) break;
      is_tuple = true;
    }
    if (!is_tuple) {
      if (!items.empty()) return std::move(items[0]);
      if (!in_parentheses) fail(fmt::format("expected an expression, got {}", describe(now())));
    }
    auto node = std::make_unique<Sequence>(NodeKind::kTuple, position);
    node->items = std::move(items);
    const Nodes& children = node->items;
    return checked(std::move(node), children);
  }

  NodePtr conditional() {
    const Level level(*this);
    const Position position = now().position;
    NodePtr node = logical_or();
    while (skip_name("if")) {
      auto chosen = std::make_unique<Conditional>(position);
      chosen->then = std::move(node);
      chosen->condition = logical_or();
      if (skip_name("else")) chosen->otherwise = conditional();
      const auto& c = *chosen;
      node = checked(std::move(chosen), {c.then.get(), c.condition.get(), c.otherwise.get()});
    }
    return node;
  }

  NodePtr binary(NodeKind kind, Position position, NodePtr left, NodePtr right, BinaryOp op = BinaryOp::kAdd) {
    auto node = std::make_unique<Binary>(kind, position, std::move(left), std::move(right));
    node->op = op;
    const auto& b = *node;
    return checked(std::move(node), {b.left.get(), b.right.get()});
  }
  NodePtr unary(NodeKind kind, Position position, NodePtr operand) {
    auto node = std::make_unique<Unary>(kind, position, std::move(operand));
    const auto& u = *node;
    return checked(std::move(node), {u.operand.get()});
  }

  NodePtr logical_or() {
    NodePtr left = logical_and();
    for (Position p = now().position; skip_name("or"); p = now().position)
      left = binary(NodeKind::kOr, p, std::move(left), logical_and());
    return left;
  }
  NodePtr logical_and() {
    NodePtr left = logical_not();
    for (Position p = now().position; skip_name("and"); p = now().position)
      left = binary(NodeKind::kAnd, p, std::move(left), logical_not());
    return left;
  }
  NodePtr logical_not() {
    const Level level(*this);
    const Position position = now().position;
    if (skip_name("not")) return unary(NodeKind::kNot, position, logical_not());
    return comparison();
  }

  std::optional<CompareOp> compare_op() {
    static constexpr std::pair<TokenKind, CompareOp> kOps[] = {
        {TokenKind::kEq, CompareOp::kEq}, {TokenKind::kNe, CompareOp::kNe}, {TokenKind::kLt, CompareOp::kLt},
        {TokenKind::kLe, CompareOp::kLe}, {TokenKind::kGt, CompareOp::kGt}, {TokenKind::kGe, CompareOp::kGe}};
    for (const auto& [kind, op] : kOps)
      if (skip(kind)) return op;
    if (skip_name("in")) return CompareOp::kIn;
    if (is_name("not") && after().kind == TokenKind::kName && after().text == "in") {
      take();
      take();
      return CompareOp::kNotIn;
    }
    return std::nullopt;
  }

  NodePtr comparison() {
    const Position position = now().position;
    NodePtr first = sum();
    auto node = std::make_unique<Compare>(position);
    node->depth = first->depth;
    while (const auto op = compare_op()) {
      NodePtr next = sum();
      node->depth = std::max(node->depth, next->depth);
      node->rest.emplace_back(*op, std::move(next));
    }
    if (node->rest.empty()) return first;
    node->first = std::move(first);
    ++node->depth;
    return finish(std::move(node));
  }

  NodePtr sum() {
    NodePtr left = concat();
    for (;;) {
      const Position position = now().position;
      const BinaryOp op = is(TokenKind::kAdd) ? BinaryOp::kAdd : BinaryOp::kSub;
      if (!skip(TokenKind::kAdd) && !skip(TokenKind::kSub)) return left;
      left = binary(NodeKind::kBinary, position, std::move(left), concat(), op);
    }
  }
  NodePtr concat() {
    const Position position = now().position;
    NodePtr first = product();
    if (!is(TokenKind::kTilde)) return first;
    auto node = std::make_unique<Sequence>(NodeKind::kConcat, position);
    node->items.push_back(std::move(first));
    while (skip(TokenKind::kTilde)) node->items.push_back(product());
    const Nodes& children = node->items;
    return checked(std::move(node), children);
  }
  NodePtr product() {
    NodePtr left = power();
    for (;;) {
      static constexpr std::pair<TokenKind, BinaryOp> kOps[] = {{TokenKind::kMul, BinaryOp::kMul},
                                                                {TokenKind::kDiv, BinaryOp::kDiv},
                                                                {TokenKind::kFloorDiv, BinaryOp::kFloorDiv},
                                                                {TokenKind::kMod, BinaryOp::kMod}};
      const auto op = std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& o) { return is(o.first); });
      if (op == std::end(kOps)) return left;
      const Position position = take().position;
      left = binary(NodeKind::kBinary, position, std::move(left), power(), op->second);
    }
  }
  NodePtr power() {
    NodePtr left = prefixed();
    for (Position p = now().position; skip(TokenKind::kPow); p = now().position)
      left = binary(NodeKind::kBinary, p, std::move(left), prefixed(), BinaryOp::kPow);
    return left;
  }

  NodePtr prefixed(bool with_filters = true) {
    const Level level(*this);
    const Position position = now().position;
    NodePtr node;
    if (skip(TokenKind::kSub)) {
      node = unary(NodeKind::kNegate, position, prefixed(false));
    } else if (skip(TokenKind::kAdd)) {
      node = unary(NodeKind::kPlus, position, prefixed(false));
    } else {
      node = primary();
    }
    node = postfixes(std::move(node));
    if (with_filters) node = filters_and_tests(std::move(node));
    return node;
  }

  NodePtr primary() {
    const Position position = now().position;
    switch (now().kind) {
      case TokenKind::kName: {
        std::string name = take().text;
        if (name == "true" || name == "True") return constant(position, Value::boolean(true));
        if (name == "false" || name == "False") return constant(position, Value::boolean(false));
        if (name == "none" || name == "None") return constant(position, Value::none());
        return std::make_unique<Name>(position, std::move(name));
      }
      case TokenKind::kString: {
        std::string text = take().text;
        while (is(TokenKind::kString)) text += take().text;
        const Value value = constants_.string(text);
        // The characters are counted now, because threads share the constant.
        value.as_str()->length = static_cast<int64_t>(count_chars(text));
        return constant(position, value);
      }
      case TokenKind::kInteger: return constant(position, integer(take()));
      case TokenKind::kFloat: {
        const std::string digits = take().text;
        double value = 0;
        const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (end.ec == std::errc::result_out_of_range) value = std::strtod(digits.c_str(), nullptr);  // infinity or 0
        return constant(position, Value::number(value));
      }
      case TokenKind::kLeftParen: {
        take();
        NodePtr node = tuple_or_expression(true, {}, true);
        expect(TokenKind::kRightParen, "')'");
        return node;
      }
      case TokenKind::kLeftBracket: {
        take();
        auto node = std::make_unique<Sequence>(NodeKind::kList, position);
        while (!is(TokenKind::kRightBracket)) {
          if (!node->items.empty()) expect(TokenKind::kComma, "','");
          if (is(TokenKind::kRightBracket)) break;
          node->items.push_back(expression());
        }
        expect(TokenKind::kRightBracket, "']'");
        const Nodes& children = node->items;
        return checked(std::move(node), children);
      }
      case TokenKind::kLeftBrace: {
        take();
        auto node = std::make_unique<DictLiteral>(position);
        while (!is(TokenKind::kRightBrace)) {
          if (!node->items.empty()) expect(TokenKind::kComma, "','");
          if (is(TokenKind::kRightBrace)) break;
          NodePtr key = expression();
          expect(TokenKind::kColon, "':'");
          NodePtr value = expression();
          node->depth = std::max({node->depth, key->depth + 1, value->depth + 1});
          node->items.emplace_back(std::move(key), std::move(value));
        }
        expect(TokenKind::kRightBrace, "'}'");
        return finish(std::move(node));
      }
      default: fail(fmt::format("unexpected {}", describe(now())));
    }
  }

  Value integer(const Token& token) {
    std::string_view digits = token.text;
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0') {
      const char prefix = static_cast<char>(digits[1] | 0x20);
      base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
      if (base != 10) digits.remove_prefix(2);
    }
    int64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value, base).ec != std::errc())
      fail_at(token.position, "integers of more than 64 bits are not supported", Code::unsupported);
    return Value::integer(value);
  }

  NodePtr postfixes(NodePtr node) {
    for (;;) {
      if (is(TokenKind::kDot) || is(TokenKind::kLeftBracket)) node = subscript(std::move(node));
      else if (is(TokenKind::kLeftParen)) node = call(std::move(node));
      else return node;
    }
  }

  NodePtr filters_and_tests(NodePtr node) {
    for (;;) {
      if (is(TokenKind::kPipe)) node = filters(std::move(node), false);
      else if (is_name("is")) node = test(std::move(node));
      else if (is(TokenKind::kLeftParen)) node = call(std::move(node));
      else return node;
    }
  }

  NodePtr item(Position position, NodePtr object, NodePtr index) {
    auto node = std::make_unique<Item>(position, std::move(object), std::move(index));
    const auto& i = *node;
    return checked(std::move(node), {i.object.get(), i.index.get()});
  }

  NodePtr subscript(NodePtr object) {
    const Position position = now().position;
    if (take().kind == TokenKind::kDot) {
      if (is(TokenKind::kInteger)) {
        const Position at = now().position;
        return item(position, std::move(object), constant(at, integer(take())));
      }
      auto node = std::make_unique<Attribute>(position, std::move(object), expect(TokenKind::kName, "a name").text);
      const auto& a = *node;
      return checked(std::move(node), {a.object.get()});
    }
    Nodes indexes;
    while (!is(TokenKind::kRightBracket)) {
      if (!indexes.empty()) expect(TokenKind::kComma, "','");
      indexes.push_back(subscript_index());
    }
    expect(TokenKind::kRightBracket, "']'");
    if (indexes.size() == 1) return item(position, std::move(object), std::move(indexes[0]));
    if (indexes.empty()) fail_at(position, "expected an index in '[]'");
    for (const NodePtr& index : indexes)
      if (index->kind == NodeKind::kSlice) fail_at(index->position, "a slice cannot be part of a tuple");
    auto tuple = std::make_unique<Sequence>(NodeKind::kTuple, position);
    tuple->items = std::move(indexes);
    const Nodes& children = tuple->items;
    return item(position, std::move(object), checked(std::move(tuple), children));
  }

  NodePtr subscript_index() {
    const Position position = now().position;
    NodePtr start;
    if (!is(TokenKind::kColon)) {
      start = expression();
      if (!is(TokenKind::kColon)) return start;
    }
    take();
    auto node = std::make_unique<Slice>(position);
    node->start = std::move(start);
    const auto is_end = [&] { return is(TokenKind::kRightBracket) || is(TokenKind::kComma); };
    if (!is(TokenKind::kColon) && !is_end()) node->stop = expression();
    if (skip(TokenKind::kColon) && !is_end()) node->step = expression();
    const auto& s = *node;
    return checked(std::move(node), {s.start.get(), s.stop.get(), s.step.get()});
  }

  int arguments(CallArguments& to) {
    const Position position = expect(TokenKind::kLeftParen, "'('").position;
    int depth = 0;
    const auto counted = [&](NodePtr node) {
      depth = std::max(depth, node->depth);
      return node;
    };
    const auto ensure = [&](bool holds) {
      if (!holds) fail_at(position, "invalid syntax for a call");
    };
    bool is_first = true;
    while (!is(TokenKind::kRightParen)) {
      if (!std::exchange(is_first, false)) {
        expect(TokenKind::kComma, "','");
        if (is(TokenKind::kRightParen)) break;
      }
      if (skip(TokenKind::kMul)) {
        ensure(!to.more_positional && !to.more_keywords);
        to.more_positional = counted(expression());
      } else if (skip(TokenKind::kPow)) {
        ensure(!to.more_keywords);
        to.more_keywords = counted(expression());
      } else if (is(TokenKind::kName) && after().kind == TokenKind::kAssign) {
        ensure(!to.more_keywords);
        std::string name = take().text;
        take();
        for (const auto& [other, value] : to.keywords)
          if (other == name) fail_at(position, fmt::format("argument '{}' is given twice", name));
        to.keywords.emplace_back(std::move(name), counted(expression()));
      } else {
        ensure(!to.more_positional && !to.more_keywords && to.keywords.empty());
        to.positional.push_back(counted(expression()));
      }
    }
    expect(TokenKind::kRightParen, "')'");
    return depth;
  }

  NodePtr call(NodePtr callee) {
    auto node = std::make_unique<Call>(now().position);
    node->depth = std::max(callee->depth, arguments(node->arguments)) + 1;
    node->callee = std::move(callee);
    return finish(std::move(node));
  }

  std::string dotted_name(Position& position) {
    Token first = expect(TokenKind::kName, "a name");
    position = first.position;
    std::string name = std::move(first.text);
    while (skip(TokenKind::kDot)) name += "." + expect(TokenKind::kName, "a name").text;
    return name;
  }

  NodePtr filters(NodePtr object, bool is_at_name) {
    while (is_at_name || is(TokenKind::kPipe)) {
      if (!std::exchange(is_at_name, false)) take();
      Position position;
      std::string name = dotted_name(position);
      auto node = std::make_unique<Apply>(NodeKind::kFilter, position);
      node->name = std::move(name);
      node->filter = find_filter(node->name);
      int depth = object ? object->depth : 0;
      if (is(TokenKind::kLeftParen)) depth = std::max(depth, arguments(node->arguments));
      node->depth = depth + 1;
      node->object = std::move(object);
      object = finish(std::move(node));
    }
    return object;
  }

  NodePtr test(NodePtr object) {
    const Position position = take().position;
    const bool negated = skip_name("not");
    auto node = std::make_unique<Apply>(NodeKind::kTest, position);
    Position name_position;
    node->name = dotted_name(name_position);
    node->test = find_test(node->name);
    int depth = object->depth;
    if (is(TokenKind::kLeftParen)) {
      depth = std::max(depth, arguments(node->arguments));
    } else if ((is(TokenKind::kName) && !is_any_name({"else", "or", "and"})) || is(TokenKind::kString) ||
               is(TokenKind::kInteger) || is(TokenKind::kFloat) || is(TokenKind::kLeftBracket) ||
               is(TokenKind::kLeftBrace)) {
      if (is_name("is")) fail("tests with 'is' cannot be chained");
      NodePtr argument = postfixes(primary());
      depth = std::max(depth, argument->depth);
      node->arguments.positional.push_back(std::move(argument));
    }
    node->object = std::move(object);
    node->depth = depth + 1;
    NodePtr tested = finish(std::move(node));
    return negated ? unary(NodeKind::kNot, position, std::move(tested)) : std::move(tested);
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  Evaluation& constants_;
  SyntaxError& error_;
  std::vector<Position> open_;  ///< positions of the blocks' tags that are not closed yet
  int level_ = 0;
  int loops_ = 0;  ///< number of loops around the current statement, within its macro or call block
};

}  // namespace

bool parse(std::string_view source, Evaluation& constants, Nodes& body, SyntaxError& error) {
  std::vector<Token> tokens;
  if (!tokenize(source, tokens, error)) return false;
  return Parser(std::move(tokens), constants, error).run(body);
}

}  // namespace redline::jinja
