// GIF, BMP, TIFF, animated WebP and CMYK JPEG files of every kind that is read, beside what Pillow makes of them;
// tests/golden/image/make_image_formats.py made them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "media/image_file.h"
#include "media/lzw.h"
#include "support/npz.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

const std::string kFormats = REDLINE_SOURCE_DIR "/tests/golden/image/formats/";

std::string format_bytes(const std::string& file) {
  std::ifstream stream(kFormats + file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The files by their names without ending.
std::map<std::string, std::string> format_files() {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFormats))
    if (entry.path().extension() != ".npz") files[entry.path().stem()] = entry.path().filename();
  return files;
}

TEST(ImageFormats, EveryFileIsReadAsByPillow) {
  const auto expected = testing::read_npz(kFormats + "io.npz");
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  const auto files = format_files();
  EXPECT_EQ(files.size(), 42U);
  for (const auto& [name, file] : files) {
    SCOPED_TRACE(file);
    const auto given = read_alpha_image(kFormats + file);
    ASSERT_TRUE(given.ok()) << given.status().to_string();
    const testing::NpyArray& rgb = expected->at(name);
    ASSERT_EQ(given->image.height, rgb.dim(0));
    ASSERT_EQ(given->image.width, rgb.dim(1));
    // Decoders of JPEG may differ by one in the inverse transform; all others are exact.
    const int tolerance = name == "cmyk" ? 1 : 0;
    for (size_t i = 0; i < rgb.values.size(); ++i)
      ASSERT_NEAR(given->image.rgb[i], rgb.values[i], tolerance) << "byte " << i;
    const auto alpha = expected->find(name + ".alpha");
    ASSERT_EQ(given->alpha.empty(), alpha == expected->end());
    for (size_t i = 0; i < given->alpha.size(); ++i) ASSERT_EQ(given->alpha[i], alpha->second.values[i]) << i;
    const auto plain = read_image(kFormats + file);
    ASSERT_TRUE(plain.ok());
    EXPECT_EQ(plain->rgb, given->image.rgb);
  }
}

TEST(ImageFormats, HostileFilesAreErrors) {
  for (const auto& [name, file] : format_files()) {
    SCOPED_TRACE(file);
    const std::string good = format_bytes(file);
    const size_t stride = good.size() / 300 + 1;
    for (size_t size = 0; size < good.size(); size += stride) {
      const auto cut = decode_alpha_image(good.substr(0, size), "x");
      EXPECT_TRUE(cut.ok() || !cut.status().message().empty());
      // Files may end after the first image of an animation, and before the trailer of a GIF.
      EXPECT_FALSE(cut.ok() && size < good.size() / 3) << "cut at " << size;
    }
    for (size_t i = 0; i < good.size(); i += stride)
      for (const uint8_t flip : {0x01, 0x80, 0xff}) {
        std::string bent = good;
        bent[i] = static_cast<char>(bent[i] ^ flip);
        const auto image = decode_alpha_image(bent, "x");  // an image or an error
        EXPECT_TRUE(image.ok() || !image.status().message().empty());
        EXPECT_TRUE(!image.ok() || std::ssize(image->image.rgb) == image->image.width * image->image.height * 3);
      }
  }
}

TEST(ImageFormats, SizesThatAFileCannotHoldAreErrors) {
  const auto expect = [](std::string bytes, size_t at, const std::string& size, const std::string& words) {
    bytes.replace(at, size.size(), size);
    const auto image = decode_image(bytes, "x");
    EXPECT_EQ(image.status().code(), Code::invalid_argument);
    EXPECT_THAT(image.status().message(), HasSubstr(words));
  };
  const std::string many("\x00\x20\x00\x20", 4);  // 8192 x 8192
  expect(format_bytes("gif.gif"), 6, many, "cannot hold 8192 x 8192 pixels");
  expect(format_bytes("gif.gif"), 6, "\xff\xff\xff\xff", "65535 x 65535 pixels; Redline reads up to");
  expect(format_bytes("bmp_24.bmp"), 18, std::string("\x00\x20\x00\x00\x00\x20\x00\x00", 8), "cannot hold");
  expect(format_bytes("bmp_24.bmp"), 18, std::string("\x0d\x00\x00\x00\x20\x00\x00\x00", 8), "the file ends early");
  expect(format_bytes("bmp_24.bmp"), 18, std::string("\x00\x00\x00\x80", 4), "pixels");
}

TEST(ImageFormats, WhatIsNotReadIsNamed) {
  const auto message = [](std::string bytes, size_t at, const std::string& change) {
    bytes.replace(at, change.size(), change);
    const auto image = decode_image(bytes, "x");
    EXPECT_EQ(image.status().code(), Code::unsupported) << image.status().message();
    return image.status().message();
  };
  EXPECT_THAT(message(format_bytes("bmp_8.bmp"), 30, "\x01"), HasSubstr("a BMP with run lengths; save it as PNG"));
  const std::string tiff = format_bytes("tiff_big_endian.tif");
  const size_t compression = tiff.find(std::string("\x01\x03\x00\x03\x00\x00\x00\x01\x00\x01", 10));
  ASSERT_NE(compression, std::string::npos);
  EXPECT_THAT(message(tiff, compression + 9, "\x07"), HasSubstr("a TIFF of compression 7"));
  EXPECT_THAT(message(tiff, 3, "+"), HasSubstr("BigTIFF"));
  EXPECT_THAT(decode_image("no image", "x").status().message(),
              HasSubstr("x: not a PNG, JPEG, WebP, GIF, BMP or TIFF image"));
}

TEST(Lzw, ACodeMayNameTheStringThatItMakes) {
  // Literals of 2 bits: clear 4, end 5. Codes 4 1 6 7 5 of three bits, the last of four: 1, 1 1, 1 1 1.
  uint8_t out[6];
  const std::string codes("\x8c\x5f", 2);  // from the low bits up
  const size_t written = decode_lzw(codes, {.literal_bits = 2}, out);
  EXPECT_EQ(std::vector<uint8_t>(out, out + written), (std::vector<uint8_t>{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(decode_lzw(codes.substr(0, 1), {.literal_bits = 2}, out), 1U);
  EXPECT_EQ(decode_lzw("\x3c", {.literal_bits = 2}, out), 0U);  // clear, then a code that nothing has made
}

}  // namespace
}  // namespace redline
