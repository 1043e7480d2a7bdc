#include "text/word_piece.h"

#include "text/unicode.h"

namespace redline {

Result<std::unique_ptr<TokenModel>> WordPieceModel::make(const Vocabulary& vocabulary,
                                                         const WordPieceOptions& options) {
  std::unique_ptr<WordPieceModel> model(new WordPieceModel(options));
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view piece = vocabulary.pieces[static_cast<size_t>(id)];
    const auto put = [&](PrefixMatcher& pieces, std::string_view text) -> Status {
      return text.empty() ? Status{} : pieces.insert(text, id).within(fmt::format("token {}", id));
    };
    if (options.word_prefix.empty()) {
      // A piece with the continuing prefix may begin a word too: the text "##" begins with the piece "##".
      REDLINE_TRY(put(model->begins_, piece));
      if (piece.starts_with(options.continuing_prefix))
        REDLINE_TRY(put(model->continues_, piece.substr(options.continuing_prefix.size())));
    } else if (piece.starts_with(options.word_prefix)) {
      REDLINE_TRY(put(model->begins_, piece.substr(options.word_prefix.size())));
    } else if (!vocabulary.is_special(id)) {
      REDLINE_TRY(put(model->continues_, piece));
    }
  }
  return std::unique_ptr<TokenModel>(std::move(model));
}

void WordPieceModel::encode(std::string_view word, EncodeWork& work, std::vector<TokenId>& ids) const {
  if (!work.add(word.size())) return;
  const size_t before = ids.size();
  int64_t chars = 0;
  for (size_t pos = 0; pos < word.size() && chars <= max_word_chars_; ++chars) pos += utf8_at(word, pos).bytes;
  size_t pos = chars > max_word_chars_ ? word.size() + 1 : 0;
  while (pos < word.size()) {
    const PrefixMatcher::Match match = (pos == 0 ? begins_ : continues_).longest_at(word, pos);
    pos = match.value < 0 ? word.size() + 1 : pos + match.bytes;
    if (match.value >= 0) ids.push_back(match.value);
  }
  if (pos == word.size()) return;
  ids.resize(before);
  if (unk_ >= 0) ids.push_back(unk_);
}

}  // namespace redline
