/* The module `nebis.core._native`. */

#include "native.h"

static PyMethodDef functions[] = {
    {"json_form", (PyCFunction)(void (*)(void))json_form, METH_FASTCALL, "Give the canonical form of plain JSON."},
    {"go_on", (PyCFunction)(void (*)(void))go_on, METH_FASTCALL | METH_KEYWORDS, "Let a flow go on until it waits."},
    {"plain_array", (PyCFunction)(void (*)(void))plain_array, METH_FASTCALL, "Pack a column of plain values."},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int failed = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return failed;
}

static int fill(PyObject *module)
{
    return add_type(module, &begun_spec) || add_type(module, &marking_spec) || add_type(module, &maker_spec) ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "nebis.core._native",
    .m_doc = "Compiled twins of a few functions of the core.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
