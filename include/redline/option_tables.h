// visit_options() for each struct of options that has a table: calls visit(member, row) for every row, in order.
// `member` is the member of the given struct, const if the struct is.
#pragma once

#include "redline/embedding.h"
#include "redline/image.h"
#include "redline/network.h"
#include "redline/option_row.h"
#include "redline/text.h"

namespace redline {

#define REDLINE_VISIT_OPTION(type_, name_, value_, meaning_, ...) \
  visit(options.name_, OptionRow{.name = #name_, .type = #type_, .meaning = (meaning_), __VA_ARGS__});

template <class Options, class Visit>
requires std::same_as<std::remove_const_t<Options>, TextEngineOptions>
void visit_options(Options& options, const Visit& visit) {
#define REDLINE_OPTION REDLINE_VISIT_OPTION
#include "redline/text_engine_options.inc"
}

template <class Options, class Visit>
requires std::same_as<std::remove_const_t<Options>, EmbeddingOptions>
void visit_options(Options& options, const Visit& visit) {
#define REDLINE_OPTION REDLINE_VISIT_OPTION
#include "redline/embedding_options.inc"
}

template <class Options, class Visit>
requires std::same_as<std::remove_const_t<Options>, ImageOptions>
void visit_options(Options& options, const Visit& visit) {
#define REDLINE_OPTION REDLINE_VISIT_OPTION
#include "redline/image_options.inc"
}

template <class Options, class Visit>
requires std::same_as<std::remove_const_t<Options>, NetworkOptions>
void visit_options(Options& options, const Visit& visit) {
#define REDLINE_OPTION REDLINE_VISIT_OPTION
#include "redline/network_options.inc"
}

template <class Options, class Visit>
requires std::same_as<std::remove_const_t<Options>, SamplingOptions>
void visit_options(Options& options, const Visit& visit) {
#define REDLINE_OPTION REDLINE_VISIT_OPTION
#include "redline/generate_options.inc"
}

template <class Options, class Visit>
requires std::same_as<std::remove_const_t<Options>, GenerateRequest>
void visit_options(Options& options, const Visit& visit) {
#define REDLINE_REQUEST_OPTION REDLINE_VISIT_OPTION
#include "redline/generate_options.inc"
}

template <class Options, class Visit>
requires std::same_as<std::remove_const_t<Options>, ImageRequest>
void visit_options(Options& options, const Visit& visit) {
#define REDLINE_OPTION REDLINE_VISIT_OPTION
#include "redline/image_request.inc"
}

#undef REDLINE_VISIT_OPTION

}  // namespace redline
