#include "server/body_parts.h"

#include <gtest/gtest.h>

namespace redline::server {
namespace {

/// Reads `text` in pieces of at most `step` bytes. Returns the body, and checks that no byte moves before it is whole.
std::string read_in_steps(const std::string& text, size_t step, std::optional<uint64_t> length, size_t& parts) {
  BodyParts body;
  std::vector<std::pair<const char*, char>> places;  // first byte of each piece
  parts = 0;
  size_t charged = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t more = body.next_part_bytes(length);
    EXPECT_LE(more, std::max(at, BodyParts::kMinPartBytes)) << "memory grows with what has been read";
    EXPECT_LE(more, BodyParts::kMaxPartBytes);
    charged += more;
    parts += more > 0;
    const std::span<char> room = body.room(length);
    EXPECT_GT(room.size(), 0U);
    EXPECT_LE(room.size(), BodyParts::kReadBytes) << "bytes of one read";
    const size_t bytes = std::min({step, room.size(), text.size() - at});
    std::copy_n(text.data() + at, bytes, room.data());
    places.emplace_back(room.data(), text[at]);
    body.add(bytes);
    at += bytes;
    EXPECT_EQ(body.size(), at);
  }
  EXPECT_EQ(charged, length ? text.size() : charged);
  for (const auto& [place, byte] : places) EXPECT_EQ(*place, byte);
  return body.take();
}

TEST(BodyParts, BytesDoNotMoveWhileMoreAreRead) {
  for (const size_t size : {size_t{0}, size_t{1}, BodyParts::kMinPartBytes, size_t{5'000'001}}) {
    std::string text(size, ' ');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i % 23);
    for (const size_t step : {size_t{1000}, BodyParts::kReadBytes, size_t{1} << 30}) {
      size_t parts = 0;
      EXPECT_EQ(read_in_steps(text, step, size, parts), text) << size << " by " << step;
      EXPECT_LE(parts, size / BodyParts::kMaxPartBytes + 6);
      EXPECT_EQ(read_in_steps(text, step, std::nullopt, parts), text) << size << " by " << step;
      EXPECT_LE(parts, size / BodyParts::kMaxPartBytes + 6);
    }
  }
}

TEST(BodyParts, TheEndCanBeSeenBehindAWholeBody) {
  BodyParts body;
  body.room(3);
  body.add(3);
  EXPECT_EQ(body.next_part_bytes(3), 1U);
  EXPECT_EQ(body.room(3).size(), 1U);
  EXPECT_EQ(body.take(), std::string(3, '\0'));
  EXPECT_EQ(body.size(), 0U);
  EXPECT_EQ(body.take(), "");
}

}  // namespace
}  // namespace redline::server
