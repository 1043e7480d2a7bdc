#include "media/image_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/output_file.h"
#include "media/exif.h"
#include "media/jpeg.h"
#include "media/png.h"
#include "support/npz.h"
#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

const std::string kFolder = REDLINE_SOURCE_DIR "/tests/golden/image/files/";

std::string image_file_slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ReadImage, EveryKindAsPillowReadsIt) {
  const auto expected = testing::read_npz(kFolder + "io.npz");
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  int pngs = 0, jpegs = 0;
  for (const auto& [name, array] : *expected) {
    SCOPED_TRACE(name);
    const bool is_png = std::filesystem::exists(kFolder + name + ".png");
    ++(is_png ? pngs : jpegs);
    const auto picture = read_image(kFolder + name + (is_png ? ".png" : ".jpg"));
    ASSERT_TRUE(picture.ok()) << picture.status().to_string();
    ASSERT_EQ(picture->height, array.dim(0));
    ASSERT_EQ(picture->width, array.dim(1));
    ASSERT_EQ(picture->rgb.size(), array.values.size());
    for (size_t i = 0; i < array.values.size(); ++i) ASSERT_EQ(picture->rgb[i], array.values[i]) << "byte " << i;
  }
  EXPECT_EQ(pngs, 30);
  EXPECT_EQ(jpegs, 11);
}

RgbImage ramp(int64_t width, int64_t height) {
  RgbImage picture{width, height, {}};
  for (int64_t i = 0; i < width * height * 3; ++i) picture.rgb.push_back(static_cast<uint8_t>(i * 7));
  return picture;
}

TEST(Png, ComesBackWithItsText) {
  const testing::TemporaryFolder folder;
  const ImageText text = {{"parameters", "a red circle, steps 28"}, {"prompt", "ein grüner Stern ★"}, {"empty", ""}};
  for (const auto& [width, height] : {std::pair{1, 1}, {7, 5}, {256, 3}}) {
    const RgbImage picture = ramp(width, height);
    const Status written = write_png(folder.path() + "/x.png", picture, text);
    ASSERT_TRUE(written.ok()) << written.to_string();
    ImageText got;
    const auto back = read_png(folder.path() + "/x.png", &got);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(back->width, width);
    EXPECT_EQ(back->height, height);
    EXPECT_EQ(back->rgb, picture.rgb);
    EXPECT_EQ(got, text);
  }
}

// A smooth image: what lossy formats keep.
RgbImage gradient(int64_t width, int64_t height) {
  RgbImage image{width, height, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (const int64_t v : {x * 255 / width, y * 255 / height, int64_t{128}})
        image.rgb.push_back(static_cast<uint8_t>(v));
  return image;
}

TEST(WriteImage, EveryFormatComesBackWithItsText) {
  const testing::TemporaryFolder folder;
  const ImageText text = {{"parameters", "ein grüner Stern ★ 🦊\nSteps: 3"}, {"redline", "{\"seed\":1}"}};
  for (const char* name : {"x.png", "x.jpg", "x.JPEG", "x.webp", "x"}) {
    SCOPED_TRACE(name);
    const auto format = image_format_of(name);
    ASSERT_TRUE(format.ok());
    const RgbImage image = gradient(61, 35);
    const auto bytes = encode_image(image, *format, text);
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    const std::string path = folder.path() + "/" + name;
    ASSERT_TRUE(write_file(path, *bytes).ok());
    ImageText got;
    const auto back = read_image(path, &got);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    ASSERT_EQ(back->width, 61);
    ASSERT_EQ(back->height, 35);
    double error = 0;
    for (size_t i = 0; i < image.rgb.size(); ++i) error += std::abs(int{image.rgb[i]} - int{back->rgb[i]});
    EXPECT_LE(error / static_cast<double>(image.rgb.size()), *format == ImageFormat::kPng ? 0 : 2);
    EXPECT_EQ(got, text);
    const auto plain = encode_image(image, *format);
    ASSERT_TRUE(plain.ok());
    EXPECT_LT(plain->size(), bytes->size());
    // Cut anywhere, it is refused.
    for (const size_t size : {bytes->size() / 2, size_t{20}, size_t{13}}) {
      ASSERT_TRUE(write_file(path, bytes->substr(0, size)).ok());
      EXPECT_EQ(read_image(path).status().code(), Code::invalid_argument) << size;
    }
    EXPECT_EQ(encode_image({}, *format).status().code(), Code::invalid_argument);
    EXPECT_EQ(encode_image({2, 2, {1, 2, 3}}, *format).status().code(), Code::invalid_argument);
  }
  EXPECT_EQ(image_format_of("x.bmp").status().code(), Code::invalid_argument);
}

TEST(Exif, AnyBytesAreRead) {
  const std::string exif = make_exif({{"parameters", "abc"}, {"redline", "{}"}, {"prompt", "not kept"}});
  ImageText text;
  read_exif(exif, text);
  EXPECT_EQ(text, (ImageText{{"parameters", "abc"}, {"redline", "{}"}}));
  EXPECT_EQ(exif_orientation(exif), 1);
  for (size_t size = 0; size < exif.size(); ++size) read_exif(std::string_view(exif).substr(0, size), text);
  for (size_t at = 0; at < exif.size(); ++at) {
    std::string broken = exif;
    broken[at] = static_cast<char>(broken[at] ^ 0x55);
    read_exif(broken, text);
  }
  EXPECT_EQ(make_exif({{"other", "x"}}), "");
}

TEST(Png, RefusesWhatItCannotWrite) {
  EXPECT_EQ(encode_png({}).status().code(), Code::invalid_argument);
  EXPECT_EQ(encode_png({2, 2, {1, 2, 3}}).status().code(), Code::invalid_argument);
  EXPECT_EQ(encode_png({40000, 1, std::vector<uint8_t>(120000)}).status().code(), Code::invalid_argument);
  EXPECT_EQ(encode_png(ramp(1, 1), {{std::string(80, 'k'), "v"}}).status().code(), Code::invalid_argument);
  EXPECT_EQ(write_png("/nonexistent-folder/x.png", ramp(1, 1)).code(), Code::io);
}

void put_be32(std::string& bytes, size_t at, uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes[at + static_cast<size_t>(i)] = static_cast<char>(value >> (24 - 8 * i));
}
// The checksum of the first chunk, as zlib counts it.
void mend_header(std::string& png) {
  put_be32(png, 29, static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(png.data() + 12), 17)));
}

TEST(Png, HostileFilesAreErrors) {
  const std::string good = image_file_slurp(kFolder + "rgba_8_interlaced.png");
  ASSERT_TRUE(decode_png(good, "x.png").ok());
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decode_png(good.substr(0, size), "x.png").ok()) << "cut at " << size;
  for (size_t i = 0; i < good.size() * 8; i += 7) {
    std::string bent = good;
    bent[i / 8] = static_cast<char>(bent[i / 8] ^ 1 << i % 8);
    const auto picture = decode_png(bent, "x.png");  // an image or an error
    EXPECT_TRUE(picture.ok() || !picture.status().message().empty());
  }
  const auto expect = [&](uint32_t width, uint32_t height, const std::string& words) {
    std::string bent = good;
    put_be32(bent, 16, width);
    put_be32(bent, 20, height);
    mend_header(bent);
    const auto picture = decode_png(bent, "x.png");
    EXPECT_EQ(picture.status().code(), Code::invalid_argument);
    EXPECT_THAT(picture.status().message(), HasSubstr(words));
  };
  expect(0, 4, "Invalid IHDR");
  expect(32769, 1, "Invalid IHDR");
  expect(32768, 32768, "Redline reads up to 67108864 of them");
  expect(4000, 4000, "cannot hold 4000 x 4000 pixels");
  std::string large_chunk = good;  // the one after the header's claims a gigabyte
  put_be32(large_chunk, 33, 1u << 30);
  EXPECT_THAT(decode_png(large_chunk, "x.png").status().message(), HasSubstr("the file ends early"));
  EXPECT_THAT(decode_png("GIF89a..", "x.png").status().message(), HasSubstr("x.png: not a PNG file"));
}

TEST(Jpeg, HostileFilesAreErrors) {
  const std::string good = image_file_slurp(kFolder + "progressive_444.jpg");
  ASSERT_TRUE(decode_jpeg(good, "x.jpg").ok());
  for (size_t size = 0; size + 2 < good.size(); ++size)
    EXPECT_FALSE(decode_jpeg(good.substr(0, size), "x.jpg").ok()) << "cut at " << size;
  for (size_t i = 0; i < good.size() * 8; i += 7) {
    std::string bent = good;
    bent[i / 8] = static_cast<char>(bent[i / 8] ^ 1 << i % 8);
    const auto picture = decode_jpeg(bent, "x.jpg");
    EXPECT_TRUE(picture.ok() || !picture.status().message().empty());
  }
  // The frame header has the sizes after its length and depth.
  const size_t frame = good.find("\xff\xc2");
  ASSERT_NE(frame, std::string::npos);
  std::string large = good;
  large.replace(frame + 5, 4, std::string("\x7f\xff\x7f\xff", 4));
  EXPECT_THAT(decode_jpeg(large, "x.jpg").status().message(), HasSubstr("32767 x 32767 pixels; Redline reads"));
  large.replace(frame + 5, 4, std::string("\x1f\xff\x1f\xff", 4));
  EXPECT_FALSE(decode_jpeg(large, "x.jpg").ok());
  // Scans without end.
  const size_t scan = good.find("\xff\xda"), next = good.find("\xff\xda", scan + 2);
  ASSERT_NE(next, std::string::npos);
  std::string many = good.substr(0, scan);
  for (int i = 0; i < 300; ++i) many += good.substr(scan, next - scan);
  many += good.substr(next);
  EXPECT_THAT(decode_jpeg(many, "x.jpg").status().message(), HasSubstr("more than 200 scans"));
}

TEST(ReadImage, OtherFilesAreErrors) {
  const auto picture = read_image(kFolder + "io.npz");
  EXPECT_EQ(picture.status().code(), Code::invalid_argument);
  EXPECT_THAT(picture.status().message(),
              HasSubstr("not a PNG, JPEG, WebP, GIF, BMP or TIFF image; it looks like a zip"));
  EXPECT_EQ(read_image(kFolder + "nothing.png").status().code(), Code::not_found);
}

}  // namespace
}  // namespace redline
