// Forecasts as pages: how far they are off where that can be tried, then what they say.
#pragma once

#include <vector>

#include "reports/forecast/forecast.h"
#include "reports/formats/page.h"

namespace nearmetal {

Page forecast_page(const Forecast& forecast);
/// The same of both sides, with the size from which on the VM loses much.
Page forecast_page(const ForecastPair& pair);
/// A forecast beside what was measured later.
Page forecast_check_page(const std::vector<ForecastCheck>& checks);

}  // namespace nearmetal
