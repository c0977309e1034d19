// Registers c10's own device guard that does nothing for CUDA, so that a build of torch without CUDA slices and views
// fake tensors of a GPU. Compiled by the test that needs it.
#include <Python.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

static c10::impl::DeviceGuardImplRegistrar registrar(
    c10::DeviceType::CUDA, new c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>());

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "noop_guard", nullptr, -1, nullptr};

PyMODINIT_FUNC PyInit_noop_guard(void) { return PyModule_Create(&definition); }
