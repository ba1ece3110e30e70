/* A value of a class with slots, in one step: `nebis.core.quick.Maker`. */

#include "native.h"
#include <structmember.h>

enum { MOST_FIELDS = 32 };

typedef struct {
    PyObject_HEAD
    PyTypeObject *kind;
    PyObject *written;       /* The Python function that does the same; its arguments are the fields. */
    Py_ssize_t fields, by_position;
    PyObject *names[MOST_FIELDS], *defaults[MOST_FIELDS]; /* A field without a default has NULL. */
    Py_ssize_t offsets[MOST_FIELDS];
} Maker;

static PyObject **place_of(const Maker *self, PyObject *value, Py_ssize_t field)
{
    return (PyObject **)((char *)value + self->offsets[field]);
}

/* Fills what is named; returns 0 for whatever is unusual. Names are mostly given in the order of the fields. */
static int fill_named(const Maker *self, PyObject *value, PyObject *const *given, PyObject *names)
{
    Py_ssize_t field = 0;
    for (Py_ssize_t number = 0; number < PyTuple_GET_SIZE(names); number++) {
        PyObject *name = PyTuple_GET_ITEM(names, number);
        for (Py_ssize_t tried = 0; self->names[field] != name; tried++) {
            field = field + 1 < self->fields ? field + 1 : 0;
            if (tried == self->fields) {
                return 0;
            }
        }
        PyObject **place = place_of(self, value, field);
        if (*place != NULL) {
            return 0;
        }
        *place = Py_NewRef(given[number]);
    }
    return 1;
}

static int fill_rest(const Maker *self, PyObject *value, Py_ssize_t field)
{
    for (; field < self->fields; field++) {
        PyObject **place = place_of(self, value, field);
        if (*place == NULL) {
            if (self->defaults[field] == NULL) {
                return 0;
            }
            *place = Py_NewRef(self->defaults[field]);
        }
    }
    return 1;
}

static PyObject *maker_make(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    const Maker *self = (Maker *)object;
    if (count <= self->by_position) {
        PyObject *value = self->kind->tp_alloc(self->kind, 0);
        if (value == NULL) {
            return NULL;
        }
        for (Py_ssize_t field = 0; field < count; field++) {
            *place_of(self, value, field) = Py_NewRef(args[field]);
        }
        if ((names == NULL || fill_named(self, value, args + count, names)) && fill_rest(self, value, count)) {
            return value;
        }
        Py_DECREF(value);
    }
    return PyObject_Vectorcall(self->written, args, (size_t)count, names);
}

/* Finds where a field lies; returns 0 with an error set if it is no slot. */
static int find_field(Maker *self, Py_ssize_t field)
{
    PyObject *found = PyObject_GetAttr((PyObject *)self->kind, self->names[field]);
    if (found == NULL) {
        return 0;
    }
    const PyMemberDef *slot = Py_IS_TYPE(found, &PyMemberDescr_Type) ? ((PyMemberDescrObject *)found)->d_member : NULL;
    int is_slot = slot != NULL && slot->type == T_OBJECT_EX && PyType_IsSubtype(self->kind, PyDescr_TYPE(found));
    self->offsets[field] = is_slot ? slot->offset : 0;
    Py_DECREF(found);
    if (!is_slot) {
        PyErr_Format(PyExc_TypeError, "%U is not a slot", self->names[field]);
    }
    return is_slot;
}

static int read_fields(Maker *self)
{
    const PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(self->written);
    PyObject *defaults = PyFunction_GET_DEFAULTS(self->written), *named = PyFunction_GET_KW_DEFAULTS(self->written);
    Py_ssize_t first_default = code->co_argcount - (defaults == NULL ? 0 : PyTuple_GET_SIZE(defaults));
    Py_ssize_t fields = code->co_argcount + code->co_kwonlyargcount;
    PyObject *names = PyCode_GetVarnames((PyCodeObject *)code);
    if (names == NULL) {
        return 0;
    }
    if (fields > MOST_FIELDS) {
        PyErr_Format(PyExc_TypeError, "a value has at most %d fields", MOST_FIELDS);
        fields = 0;
    }
    self->by_position = code->co_argcount;
    for (; self->fields < fields; self->fields++) {
        Py_ssize_t field = self->fields;
        PyObject *value = NULL;
        self->names[field] = Py_NewRef(PyTuple_GET_ITEM(names, field));
        if (field >= code->co_argcount) {
            value = named == NULL ? NULL : PyDict_GetItemWithError(named, self->names[field]);
        }
        else if (field >= first_default) {
            value = PyTuple_GET_ITEM(defaults, field - first_default);
        }
        self->defaults[field] = Py_XNewRef(value);
        if (!find_field(self, field)) {
            break;
        }
    }
    Py_DECREF(names);
    return !PyErr_Occurred();
}

static PyObject *maker_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"kind", "written", NULL};
    PyObject *kind, *written;
    if (!PyArg_ParseTupleAndKeywords(
            args, names, "O!O!", keywords, &PyType_Type, &kind, &PyFunction_Type, &written
        )) {
        return NULL;
    }
    Maker *self = (Maker *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->kind = (PyTypeObject *)Py_NewRef(kind);
        self->written = Py_NewRef(written);
        if (!read_fields(self)) {
            Py_CLEAR(self);
        }
    }
    return (PyObject *)self;
}

static int maker_traverse(PyObject *object, visitproc visit, void *arg)
{
    Maker *self = (Maker *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->kind);
    Py_VISIT(self->written);
    for (Py_ssize_t field = 0; field < MOST_FIELDS; field++) {
        Py_VISIT(self->defaults[field]);
    }
    return 0;
}

static void maker_dealloc(PyObject *object)
{
    Maker *self = (Maker *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->kind);
    Py_XDECREF(self->written);
    for (Py_ssize_t field = 0; field < MOST_FIELDS; field++) {
        Py_XDECREF(self->names[field]);
        Py_XDECREF(self->defaults[field]);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef maker_methods[] = {
    {"make", (PyCFunction)(void (*)(void))maker_make, METH_FASTCALL | METH_KEYWORDS, "Make a value of these fields."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot maker_slots[] = {
    {Py_tp_new, maker_new},
    {Py_tp_traverse, maker_traverse},
    {Py_tp_dealloc, maker_dealloc},
    {Py_tp_methods, maker_methods},
    {Py_tp_doc, "What makes the values of a class with slots."},
    {0, NULL},
};

PyType_Spec maker_spec = {
    .name = "nebis.core._native.Maker",
    .basicsize = sizeof(Maker),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = maker_slots,
};
