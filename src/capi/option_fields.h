// Conversion of one option between the C interface and C++, by the types of its row (redline/text_engine_options.inc).
// The functions that convert a struct call these for every row of its table.
#pragma once

#include <concepts>
#include <optional>
#include <string>

#include "base/error.h"
#include "redline/embedding.h"
#include "redline/precision.h"

namespace redline::capi {

/// Copies a number.
template <class T>
requires std::integral<T> || std::floating_point<T> Status read_option(T from, T& to) {
  to = from;
  return {};
}
inline Status read_option(int32_t from, bool& to) {
  to = from != 0;
  return {};
}
/// Text and names: NULL keeps the default. invalid_argument: an unknown name.
inline Status read_option(const char* from, std::string& to) {
  if (from != nullptr) to = from;
  return {};
}
inline Status read_option(const char* from, Precision& to) {
  if (from == nullptr) return {};
  REDLINE_ASSIGN(to, precision_from_name(from));
  return {};
}
inline Status read_option(const char* from, std::optional<Pooling>& to) {
  if (from == nullptr) return {};
  REDLINE_ASSIGN(to, pooling_from_name(from));
  return {};
}

/// Writes the default of an option. That of text and names is NULL, which read_option() understands.
template <class T>
requires std::integral<T> || std::floating_point<T>
void write_default(T from, T& to) { to = from; }
inline void write_default(bool from, int32_t& to) { to = from ? 1 : 0; }
template <class T>
void write_default(const T& /*from*/, const char*& to) {
  to = nullptr;
}

/// read_option() for requests, in which a NULL text clears a default of the model.
template <class From, class To>
void read_request_option(From from, To& to) {
  if constexpr (std::same_as<To, std::string>) {
    to = from != nullptr ? from : "";
  } else {
    to = static_cast<To>(from);
  }
}
/// write_default() for requests, whose defaults are those of a model: texts are borrowed from it, NULL if empty.
template <class From, class To>
void borrow_option(const From& from, To& to) {
  if constexpr (std::same_as<From, std::string>) {
    to = from.empty() ? nullptr : from.c_str();
  } else {
    to = static_cast<To>(from);
  }
}

}  // namespace redline::capi
