#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "bench/tf_cnn_benchmarks/flags.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::ThrowsMessage;
using Words = std::vector<std::string>;

TEST(AbslWords, BooleansAreSpelledInSixWays) {
  for (const char* word : {"--use_fp16", "-use_fp16", "--use_fp16=true", "--use_fp16=True",
                           "-use_fp16=t", "--use_fp16=1"}) {
    EXPECT_THAT(spelled_out({word}), ElementsAre("--use_fp16=true")) << word;
  }
  for (const char* word :
       {"--nouse_fp16", "-nouse_fp16", "--use_fp16=false", "--use_fp16=F", "--use_fp16=0"}) {
    EXPECT_THAT(spelled_out({word}), ElementsAre("--use_fp16=false")) << word;
  }
}

TEST(AbslWords, ABooleanTakesNoWordBehindIt) {
  EXPECT_THAT(
      [] {
        spelled_out({"--use_fp16", "true"});
      },
      ThrowsMessage<std::invalid_argument>(testing::HasSubstr("--use_fp16=true")));
  EXPECT_THAT([] { spelled_out({"--use_fp16=yes"}); },
              ThrowsMessage<std::invalid_argument>("--use_fp16 is true or false, not 'yes'"));
}

TEST(AbslWords, OthersTakeTheNextWordWhateverItIs) {
  EXPECT_THAT(spelled_out({"-batch_size", "64", "--model=resnet50", "--init_learning_rate", "-1"}),
              ElementsAre("--batch_size=64", "--model=resnet50", "--init_learning_rate=-1"));
  EXPECT_THAT(spelled_out({"--trace_file=", "--xla"}),
              ElementsAre("--trace_file", "", "--xla=true"));
  EXPECT_THAT([] { spelled_out({"--batch_size"}); },
              ThrowsMessage<std::invalid_argument>("--batch_size takes a value"));
}

// Not the negation of "des", but a flag of its own.
TEST(AbslWords, NamesThatBeginWithNoAreKnown) {
  EXPECT_THAT(spelled_out({"--num_batches=3", "--nodistortions"}),
              ElementsAre("--num_batches=3", "--distortions=false"));
  EXPECT_THAT(spelled_out({"--nomodel", "--xla"}), ElementsAre("--nomodel"));
}

TEST(AbslWords, WhatIsNoFlagIsRefused) {
  for (const char* word : {"resnet50", "-", ""}) {
    EXPECT_THROW(spelled_out({word}), std::invalid_argument) << word;
  }
}

TEST(AbslWords, WordsEndAtAFlagThatIsNotKnown) {
  EXPECT_THAT(spelled_out({"--xla", "--modle", "resnet50"}), ElementsAre("--xla=true", "--modle"));
}

TEST(AbslWords, WhatFollowsTwoDashesStays) {
  EXPECT_THAT(spelled_out({"--xla", "--", "-x", "true", "--nouse_fp16"}),
              ElementsAre("--xla=true", "--", "-x", "true", "--nouse_fp16"));
}

}  // namespace
}  // namespace nearmetal
