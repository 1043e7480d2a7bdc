// A compiled Jinja template: jinja2's language as transformers configures it (trim_blocks, lstrip_blocks, the immutable
// sandbox, loop controls, {% generation %}). Rendering is bounded by Limits.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "chat/jinja/evaluation.h"

namespace redline::jinja {

class Template {
 public:
  /// Compiles a template. Errors: invalid_argument or unsupported, with line and column.
  static Result<Template> compile(std::string_view source);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  /// Renders the template. `variables`: the variables of the template, in the memory of `e`. Thread-safe.
  Result<std::string> render(Evaluation& e, const Dict& variables) const;

 private:
  struct Parts;
  explicit Template(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace redline::jinja
