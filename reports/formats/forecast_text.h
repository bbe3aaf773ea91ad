// Forecasts as pages: how far they are off where that can be tried, then what they say.
#pragma once

#include <vector>

#include "reports/forecast/forecast.h"
#include "reports/formats/page.h"

namespace nearmetal {

/// Of two sides also the size from which on the VM loses much.
Page forecast_page(const Forecast& forecast);
/// A forecast beside what was measured later, in samples of that unit.
Page forecast_check_page(const std::vector<HoldOut>& checks, SampleUnit unit);

}  // namespace nearmetal
