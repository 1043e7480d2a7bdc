// Opens the tokenizer of a model in any file format.
#pragma once

#include <memory>
#include <string>

#include "chat/chat_template.h"
#include "formats/gguf_writer.h"
#include "redline/fill_in.h"
#include "text/gguf_vocab.h"

namespace redline {

/// Reads tokenizer.ggml.* from an open file. invalid_argument: a key of the wrong type (named), or lists whose lengths
/// differ. not_found: the file has no vocabulary.
Result<GgufVocab> read_gguf_vocab(const GgufFile& file);

/// Reads tokenizer.ggml.fim_*_token_id from an open file, and the keys of older files without "fim_". invalid_argument:
/// a key of the wrong type (named).
Result<FillInTokens> read_gguf_fill_in_tokens(const GgufFile& file);

/// Writes tokenizer.ggml.* and the chat templates to `writer`, without keys that `vocab` leaves unset.
void set_gguf_vocab(const GgufVocab& vocab, GgufWriter& writer);

/// Loads the tokenizer of a GGUF file or a Hugging Face folder. not_found: no such file, or a model without a
/// tokenizer.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& path);

/// Returns the chat template of an open file, with its special tokens.
ChatTemplateSource chat_template_from_gguf(const GgufFile& file);
/// Returns the chat template of a GGUF file or a Hugging Face folder, with its special tokens.
Result<ChatTemplateSource> load_chat_template_source(const std::string& path);
/// Returns the text of the default chat template (Jinja) of a GGUF file or a Hugging Face folder; "" if it has none.
Result<std::string> load_chat_template(const std::string& path);

}  // namespace redline
