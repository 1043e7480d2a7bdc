// Marker tokens of fill-in-the-middle prompts, as a model's file names them.
#pragma once

#include <cstdint>

namespace redline {

/// Token ids; -1: the file names no such token.
struct FillInTokens {
  int32_t prefix = -1, suffix = -1, middle = -1;
  int32_t pad = -1;
  int32_t repository = -1;  ///< before the name of a repository
  int32_t file = -1;        ///< between the files of a repository
};

/// A TextEngine that knows them implements this interface, too.
class FillInVocabulary {
 public:
  virtual ~FillInVocabulary() = default;
  virtual const FillInTokens& fill_in_tokens() const = 0;
};

}  // namespace redline
