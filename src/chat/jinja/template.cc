#include "chat/jinja/template.h"

#include "chat/jinja/parser.h"
#include "chat/jinja/renderer.h"
#include "chat/jinja/scopes.h"

namespace redline::jinja {
namespace {

Status error_at(Code code, Position at, std::string_view message) {
  return Status(code, fmt::format("line {}, column {}: {}", at.line, at.column, message));
}

}  // namespace

struct Template::Parts {
  Evaluation constants{Limits{}};
  Nodes body;
  Scope root;
};

Template::Template(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::compile(std::string_view source) {
  constexpr size_t kMaxBytes = 4 << 20;
  if (source.size() > kMaxBytes) return invalid_argument("the template has more than {} bytes", kMaxBytes);
  auto parts = std::make_unique<Parts>();
  SyntaxError error;
  if (!parse(source, parts->constants, parts->body, error) || !resolve_names(parts->body, parts->root, error))
    return error_at(error.code, error.position, error.message);
  return Template(std::move(parts));
}

Result<std::string> Template::render(Evaluation& e, const Dict& variables) const {
  try {
    std::string out = Renderer(e, variables).run(parts_->body, parts_->root);
    if (e.failed()) return error_at(e.code(), e.failed_at(), e.message());
    return out;
  } catch (const std::bad_alloc&) {
    return out_of_memory("a template needs more memory than there is");
  }
}

}  // namespace redline::jinja
