/// As precompiled.h, for tests.
#pragma once
#include <gtest/gtest.h>

#include "cmake/precompiled.h"
