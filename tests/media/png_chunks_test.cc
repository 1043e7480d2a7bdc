// Chunks of PNG files: text in Latin-1 and UTF-8, orientation, transparency. The files are put together here, as
// https://www.w3.org/TR/png-3/ has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "media/exif.h"
#include "media/image_file.h"
#include "media/png.h"
#include "media/text_encoding.h"

namespace redline {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

std::string png_number(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto checksum = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return png_number(static_cast<uint32_t>(data.size())) + body + png_number(static_cast<uint32_t>(checksum));
}

std::string zlib_bytes(const std::string& text) {
  std::string packed(compressBound(static_cast<uLong>(text.size())), '\0');
  uLongf size = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
           static_cast<uLong>(text.size()));
  packed.resize(size);
  return packed;
}

/// A PNG of 8 bits per channel with chunks before its pixels, and others after them.
std::string png_file(uint32_t width, uint32_t height, int channels, const std::string& pixels,
                     const std::string& before, const std::string& after = "") {
  const char colour = channels == 4 ? 6 : channels == 3 ? 2 : 0;
  std::string rows;
  for (size_t row = 0; row < height; ++row) {
    const size_t bytes = width * static_cast<size_t>(channels);
    rows += '\0' + pixels.substr(row * bytes, bytes);
  }
  return "\x89PNG\r\n\x1a\n"s +
         png_chunk("IHDR", png_number(width) + png_number(height) + "\x08"s + colour + "\0\0\0"s) + before +
         png_chunk("IDAT", zlib_bytes(rows)) + after + png_chunk("IEND", "");
}

const std::string kEPrompt = "une fen\xc3\xaatre, caf\xc3\xa9";  // "une fenêtre, café" in UTF-8
const std::string kELatin1 = "une fen\xeatre, caf\xe9";

TEST(PngText, Latin1OfTextChunksBecomesUtf8) {
  const std::string chunks = png_chunk("tEXt", "a\0"s + kELatin1) + png_chunk("zTXt", "b\0\0"s + zlib_bytes(kELatin1)) +
                             png_chunk("iTXt", "c\0\0\0\0\0"s + kEPrompt) +
                             png_chunk("tEXt", "d\0"s + kEPrompt);  // as stable-diffusion.cpp writes it
  ImageText text;
  const auto image = decode_png(png_file(1, 1, 3, "abc", chunks), "a.png", &text);
  ASSERT_TRUE(image.ok()) << image.status().message();
  for (const char* key : {"a", "b", "c", "d"}) EXPECT_EQ(text[key], kEPrompt) << key;
}

TEST(PngText, WhatIsWrittenIsUtf8) {
  for (const std::string& given : {kEPrompt, kELatin1}) {
    const auto bytes = encode_png({1, 1, {1, 2, 3}}, {{"parameters", given}});
    ASSERT_TRUE(bytes.ok());
    EXPECT_THAT(*bytes, HasSubstr("iTXtparameters\0\0\0\0\0"s + kEPrompt));
    ImageText text;
    ASSERT_TRUE(decode_png(*bytes, "a.png", &text).ok());
    EXPECT_EQ(text["parameters"], kEPrompt);
  }
}

/// A TIFF structure whose only entry is the orientation.
std::string orientation_tiff(char orientation) {
  return "MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0"s + orientation + "\0\0\0\0\0\0"s;
}

TEST(PngExif, OrientationIsApplied) {
  // 6: the first row of the file is the right side of the image.
  const std::string pixels = "aaabbbcccddd";  // 2x2: a b / c d
  for (const bool is_late : {false, true}) {
    const std::string exif = png_chunk("eXIf", orientation_tiff(6));
    const std::string file = png_file(2, 2, 3, pixels, is_late ? "" : exif, is_late ? exif : "");
    const auto image = decode_png(file, "a.png");
    ASSERT_TRUE(image.ok()) << image.status().message();
    EXPECT_EQ(std::string(image->rgb.begin(), image->rgb.end()), "cccaaadddbbb");
  }
  const auto wide = decode_png(png_file(3, 1, 3, "aaabbbccc", png_chunk("eXIf", orientation_tiff(8))), "a.png");
  ASSERT_TRUE(wide.ok());
  EXPECT_EQ(wide->width, 1);
  EXPECT_EQ(wide->height, 3);
  EXPECT_EQ(std::string(wide->rgb.begin(), wide->rgb.end()), "cccbbbaaa");
}

TEST(PngAlpha, IsReadWithItsOrientation) {
  const std::string file = png_file(3, 1, 4,
                                    "aaa\x01"
                                    "bbb\x02"
                                    "ccc\x03",
                                    png_chunk("eXIf", orientation_tiff(3)));
  const auto given = decode_alpha_image(file, "a.png");
  ASSERT_TRUE(given.ok()) << given.status().message();
  EXPECT_EQ(std::string(given->image.rgb.begin(), given->image.rgb.end()), "cccbbbaaa");
  EXPECT_EQ(given->alpha, (std::vector<uint8_t>{3, 2, 1}));
  // One colour of a file without an alpha channel.
  const auto keyed = decode_alpha_image(png_file(2, 1, 3, "aaabbb", png_chunk("tRNS", "\0b\0b\0b"s)), "a.png");
  ASSERT_TRUE(keyed.ok());
  EXPECT_EQ(keyed->alpha, (std::vector<uint8_t>{255, 0}));
  EXPECT_TRUE(decode_alpha_image(png_file(1, 1, 3, "abc", ""), "a.png")->alpha.empty());
}

TEST(Exif, CommentsOfEitherByteOrder) {
  const auto comment_of = [](const std::string& comment) {
    // The EXIF directory is at 26, its entry points to 44.
    const std::string tiff = "MM\0*\0\0\0\x08\0\x01\x87\x69\0\x04\0\0\0\x01\0\0\0\x1a\0\0\0\0"s +
                             "\0\x01\x92\x86\0\x07"s + png_number(static_cast<uint32_t>(comment.size())) +
                             "\0\0\0\x2c\0\0\0\0"s + comment;
    ImageText text;
    read_exif(tiff, text);
    return text["parameters"];
  };
  EXPECT_EQ(comment_of("UNICODE\0\0a\0\xe9"s), "a\xc3\xa9");
  EXPECT_EQ(comment_of("UNICODE\0a\0\xe9\0"s), "a\xc3\xa9");
  EXPECT_EQ(comment_of("UNICODE\0\xff\xfe\xe9\0"s), "\xc3\xa9");
  EXPECT_EQ(comment_of("ASCII\0\0\0caf\xe9"s), "caf\xc3\xa9");
  EXPECT_EQ(comment_of("\0\0\0\0\0\0\0\0plain"s), "plain");
}

TEST(TextEncoding, SurrogatesAndIllFormedText) {
  EXPECT_EQ(utf8_of_utf16("\xd8\x3d\xde\x00"s, true), "\xf0\x9f\x98\x80");
  EXPECT_EQ(utf8_of_utf16("\xd8\x3d"s, true), "\xef\xbf\xbd");
  EXPECT_EQ(utf16_be_of("\xf0\x9f\x98\x80"), "\xd8\x3d\xde\x00"s);
  EXPECT_EQ(utf16_be_of("a\xff"), "\0a\xff\xfd"s);
}

}  // namespace
}  // namespace redline
