// Stands in for the <ATen/hip/Exceptions.h> of a ROCm build of torch.
#pragma once

#include <contribbot/torch_hip.h>
