#include "text/vocabulary.h"

#include <algorithm>
#include <cstring>

#include "base/ascii.h"

namespace redline {
namespace {

uint64_t mix(uint64_t x) {  // the finalizer of SplitMix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

// Hashes a piece, eight bytes at a time. Pieces are short, so the time of the tail matters more than that of the loop.
uint64_t PieceIndex::hash(std::string_view piece) {
  const char* at = piece.data();
  size_t left = piece.size();
  uint64_t h = left * 0x9E3779B97F4A7C15ull;
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    h = mix(h ^ word);
  }
  uint64_t word = 0;
  if (left >= 4) {
    uint32_t first, last;
    std::memcpy(&first, at, 4);
    std::memcpy(&last, at + left - 4, 4);
    word = first | static_cast<uint64_t>(last) << 32;
  } else if (left > 0) {
    word = static_cast<uint8_t>(at[0]) | static_cast<uint64_t>(static_cast<uint8_t>(at[left / 2])) << 8 |
           static_cast<uint64_t>(static_cast<uint8_t>(at[left - 1])) << 16;
  }
  return mix(h ^ word);
}

void PieceIndex::put(Slot entry, uint64_t hash) {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot].id >= 0) slot = (slot + 1) & mask;
  slots_[slot] = entry;
}

void PieceIndex::grow(const std::vector<std::string>& pieces, size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  for (const Slot& entry : old)
    if (entry.id >= 0) put(entry, hash(pieces[static_cast<size_t>(entry.id)]));
}

void PieceIndex::reserve(size_t pieces) {
  size_t slots = 64;
  while (slots < pieces * 2) slots *= 2;
  if (size_ == 0 && slots > slots_.size()) slots_.assign(slots, Slot());
}

bool PieceIndex::insert(const std::vector<std::string>& pieces, TokenId id) {
  if (size_ * 2 >= slots_.size()) grow(pieces, std::max<size_t>(64, slots_.size() * 2));
  const std::string& piece = pieces[static_cast<size_t>(id)];
  const uint64_t h = hash(piece);
  if (find(pieces, piece, h) >= 0) return false;
  put({static_cast<uint32_t>(h >> 32), id}, h);
  ++size_;
  return true;
}

TokenId PieceIndex::find(const std::vector<std::string>& pieces, std::string_view piece, uint64_t hash) const {
  if (slots_.empty()) return -1;
  const size_t mask = slots_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t slot = hash & mask; slots_[slot].id >= 0; slot = (slot + 1) & mask)
    if (slots_[slot].tag == tag && pieces[static_cast<size_t>(slots_[slot].id)] == piece) return slots_[slot].id;
  return -1;
}

void Vocabulary::build_index() {
  types.resize(pieces.size(), TokenType::normal);
  index = PieceIndex();
  index.reserve(pieces.size());
  constexpr size_t kAhead = 16;
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (id + kAhead < pieces.size()) index.prefetch(PieceIndex::hash(pieces[id + kAhead]));
    if (!pieces[id].empty()) index.insert(pieces, static_cast<TokenId>(id));
  }
}

int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const int digit = hex_digit(c);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

std::array<TokenId, 256> find_byte_tokens(const Vocabulary& vocabulary) {
  std::array<TokenId, 256> ids;
  for (int b = 0; b < 256; ++b) ids[static_cast<size_t>(b)] = vocabulary.find(fmt::format("<0x{:02X}>", b));
  return ids;
}

int32_t PrefixMatcher::child(int32_t node, uint8_t byte) const {
  if (edges_.empty()) return -1;
  const uint64_t key = ((static_cast<uint64_t>(node) << 8) | byte) + 1;
  const size_t mask = edges_.size() - 1;
  for (size_t slot = mix(key) & mask; edges_[slot].key != 0; slot = (slot + 1) & mask) {
    if (edges_[slot].key == key) return edges_[slot].to;
  }
  return -1;
}

void PrefixMatcher::add_child(int32_t node, uint8_t byte, int32_t to) {
  const auto put = [&](Edge edge) {
    const size_t mask = edges_.size() - 1;
    size_t slot = mix(edge.key) & mask;
    while (edges_[slot].key != 0) slot = (slot + 1) & mask;
    edges_[slot] = edge;
  };
  if (num_edges_ * 2 >= edges_.size()) {
    std::vector<Edge> old(std::max<size_t>(64, edges_.size() * 2));
    old.swap(edges_);
    for (const Edge& edge : old) {
      if (edge.key != 0) put(edge);
    }
  }
  put({((static_cast<uint64_t>(node) << 8) | byte) + 1, to});
  ++num_edges_;
}

Status PrefixMatcher::insert(std::string_view text, int32_t value) {
  if (text.empty()) return invalid_argument("a token to be found in text is empty");
  if (text.size() > kMaxBytes) {
    return invalid_argument("a token to be found in text has {} bytes, at most {} are allowed: \"{}...\"", text.size(),
                            kMaxBytes, text.substr(0, 40));
  }
  int32_t node = 0;
  for (const char c : text) {
    int32_t next = child(node, static_cast<uint8_t>(c));
    if (next < 0) {
      next = static_cast<int32_t>(values_.size());
      values_.push_back(-1);
      add_child(node, static_cast<uint8_t>(c), next);
    }
    node = next;
  }
  if (values_[node] < 0) values_[node] = value;
  const size_t first = static_cast<uint8_t>(text[0]);
  starts_[first] = true;
  pairs_.resize(256 * 4);
  if (text.size() > 1) {
    const auto second = static_cast<uint8_t>(text[1]);
    pairs_[first * 4 + second / 64] |= uint64_t{1} << (second % 64);
  } else {
    std::fill_n(pairs_.begin() + static_cast<int64_t>(first * 4), 4, ~uint64_t{0});
  }
  return {};
}

PrefixMatcher::Match PrefixMatcher::longest_at(std::string_view text, size_t pos) const {
  Match best;
  if (!starts_[static_cast<uint8_t>(text[pos])]) return best;
  int32_t node = 0;
  for (size_t i = pos; i < text.size(); ++i) {
    node = child(node, static_cast<uint8_t>(text[i]));
    if (node < 0) break;
    if (values_[node] >= 0) best = {values_[node], i + 1 - pos};
  }
  return best;
}

}  // namespace redline
