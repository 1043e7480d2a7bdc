// Splits template text into tokens, with jinja2's rules for white space: trim_blocks and lstrip_blocks are on, and one
// line break at the end of the template is dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chat/jinja/evaluation.h"

namespace redline::jinja {

enum class TokenKind : uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kTilde,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAssign,
  kDot,
  kComma,
  kColon,
  kSemicolon,
  kPipe,
  kLeftParen,
  kRightParen,
  kLeftBracket,
  kRightBracket,
  kLeftBrace,
  kRightBrace,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  Position position;
  std::string text;  ///< text of data, names and strings; digits of numbers without "_"
};

/// An error and its position. `message` does not contain the position.
struct SyntaxError {
  Code code = Code::ok;
  std::string message;
  Position position;
};

/// Returns false, with `error` set, for text that jinja2 rejects.
bool tokenize(std::string_view source, std::vector<Token>& tokens, SyntaxError& error);
/// Returns a token for messages: "'%}'", "a name".
std::string describe(const Token& token);

}  // namespace redline::jinja
