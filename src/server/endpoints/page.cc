// GET /: a page that says what is here.
#include "server/app.h"

namespace redline::server {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') result += "&lt;";
    else if (c == '&') result += "&amp;";
    else if (c == '"') result += "&quot;";
    else result += c;
  }
  return result;
}

AnswerOr get_page(Call& call) {
  std::string rows;
  for (const Endpoint& e : endpoints())
    rows += fmt::format("<tr><td>{}<td><code>{}</code><td>{}\n", e.method, escaped(e.path), escaped(e.summary));
  std::string models;
  for (const auto& model : call.app.models().all())
    models += fmt::format("<li><code>{}</code>\n", escaped(model->name()));
  auto answer = std::make_unique<FixedAnswer>(fmt::format(
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
      "<title>Redline</title>\n<style>body{{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}}"
      "td{{padding:.1rem 1rem .1rem 0}}</style>\n<h1>Redline</h1>\n<ul>\n{}</ul>\n<table>\n{}</table>\n",
      models, rows));
  answer->content_type = "text/html; charset=utf-8";
  answer->headers.emplace_back("Content-Security-Policy", "default-src 'self'; style-src 'self' 'unsafe-inline'");
  return std::unique_ptr<Answer>(std::move(answer));
}

}  // namespace

std::vector<Endpoint> page_endpoints() {
  return {{"GET",
           "/",
           "operations",
           "a page about this server",
           {{200, "the page", nullptr, "text/html"}},
           get_page,
           {.needs_key = false}}};
}

}  // namespace redline::server
