/* What a usual request is known by, in one step: `nebis.core.marks.Marking`. */

#include "native.h"
#include <string.h>

typedef struct {
    PyObject_HEAD
    PyTypeObject *kind;  /* Of the marks: a tuple with names. */
    PyObject *places;    /* What the identities of each tenant begin with. */
    PyObject *begun;     /* What fingerprints begin with. */
    PyObject *version;   /* Which rule and secret these are made with. */
    PyObject *before;    /* What stands before the form of a command, and behind it. */
    PyObject *behind;
    PyObject *terms;
} Marking;

enum { UUID_LENGTH = 36, FEW_LETTERS = UUID_LENGTH / 5 };

/* Tells whether a key is a UUID that looks random: `nebis.keys.is_ordinary`. */
static int is_ordinary(PyObject *key)
{
    if (!PyUnicode_CheckExact(key) || !PyUnicode_IS_COMPACT_ASCII(key) || PyUnicode_GET_LENGTH(key) != UUID_LENGTH) {
        return 0;
    }
    const unsigned char *letters = PyUnicode_1BYTE_DATA(key);
    char is_seen[128] = {0};
    int different = 0;
    for (int place = 0; place < UUID_LENGTH; place++) {
        unsigned char letter = letters[place];
        int is_digit = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f')
            || (letter >= 'A' && letter <= 'F');
        int is_dash_due = place == 8 || place == 13 || place == 18 || place == 23;
        if (is_dash_due ? letter != '-' : !is_digit) {
            return 0;
        }
        different += !is_seen[letter];
        is_seen[letter] = 1;
    }
    return different > FEW_LETTERS;
}

static void write_size(unsigned char *place, size_t size)
{
    for (int byte = 7; byte >= 0; byte--, size >>= 8) {
        place[byte] = (unsigned char)size;
    }
}

static PyObject *identity_of(const Begun *place, PyObject *key)
{
    unsigned char size[8];
    write_size(size, UUID_LENGTH);
    Part parts[] = {{size, sizeof size}, {PyUnicode_1BYTE_DATA(key), UUID_LENGTH}};
    return sign_parts(place, parts, 2);
}

static PyObject *fingerprint_of(const Marking *self, const Buffer *form)
{
    unsigned char outer_size[8], size[8];
    size_t before = (size_t)PyBytes_GET_SIZE(self->before);
    write_size(outer_size, before + sizeof size + form->used);
    write_size(size, form->used);
    Part parts[] = {
        {outer_size, sizeof outer_size},
        {PyBytes_AS_STRING(self->before), before},
        {size, sizeof size},
        {form->start, form->used},
        {PyBytes_AS_STRING(self->behind), (size_t)PyBytes_GET_SIZE(self->behind)},
    };
    return sign_parts((Begun *)self->begun, parts, sizeof parts / sizeof *parts);
}

/* Takes over the two digests, of which any may be NULL. */
static PyObject *made(const Marking *self, PyObject *identity, PyObject *tenant, PyObject *key, PyObject *fingerprint)
{
    PyObject *versioned = fingerprint == NULL ? NULL : PyTuple_Pack(2, self->version, fingerprint);
    PyObject *fingerprints = versioned == NULL ? NULL : PyTuple_Pack(1, versioned);
    PyObject *marks = identity == NULL || fingerprints == NULL ? NULL : self->kind->tp_alloc(self->kind, 6);
    if (marks != NULL) {
        PyTuple_SET_ITEM(marks, 0, Py_NewRef(identity));
        PyTuple_SET_ITEM(marks, 1, Py_NewRef(tenant));
        PyTuple_SET_ITEM(marks, 2, Py_NewRef(key));
        PyTuple_SET_ITEM(marks, 3, Py_NewRef(fingerprints));
        PyTuple_SET_ITEM(marks, 4, Py_NewRef(self->terms));
        PyTuple_SET_ITEM(marks, 5, Py_NewRef(Py_None));
    }
    Py_XDECREF(fingerprints);
    Py_XDECREF(versioned);
    Py_XDECREF(fingerprint);
    Py_XDECREF(identity);
    return marks;
}

/* (key, tenant, command): None for whatever is unusual. */
static PyObject *marking_of(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Marking *self = (Marking *)object;
    if (count != 3) {
        return PyErr_Format(PyExc_TypeError, "marks are made of a key, a tenant and a command");
    }
    PyObject *key = args[0], *tenant = args[1], *command = args[2], *marks = NULL;
    if (!is_ordinary(key) || !PyUnicode_CheckExact(tenant)) {
        Py_RETURN_NONE;
    }
    PyObject *place = PyDict_GetItemWithError(self->places, tenant);
    if (place == NULL) {
        if (PyErr_Occurred()) {
            return NULL;
        }
        Py_RETURN_NONE;
    }
    /* What is borrowed here stays: nothing runs that could change it until both digests are made. */
    Buffer form;
    buffer_begin(&form);
    int is_usual = Py_IS_TYPE(place, Py_TYPE(self->begun)) && write_form(&form, command, 0);
    if (is_usual) {
        marks = made(self, identity_of((Begun *)place, key), tenant, key, fingerprint_of(self, &form));
    }
    buffer_end(&form);
    return is_usual ? marks : Py_NewRef(Py_None);
}

static int is_begun(PyTypeObject *marking, PyObject *object)
{
    PyObject *module = PyType_GetModule(marking);
    PyObject *begun = module == NULL ? NULL : PyObject_GetAttrString(module, "Begun");
    int is_one = begun != NULL && Py_IS_TYPE(object, (PyTypeObject *)begun);
    Py_XDECREF(begun);
    return is_one;
}

static PyObject *marking_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"kind", "places", "begun", "version", "before", "behind", "terms", NULL};
    PyObject *kind, *places, *begun, *version, *before, *behind, *terms;
    if (!PyArg_ParseTupleAndKeywords(
            args, names, "O!O!OO!SSO", keywords, &PyType_Type, &kind, &PyDict_Type, &places, &begun, &PyLong_Type,
            &version, &before, &behind, &terms
        )) {
        return NULL;
    }
    if (!PyType_IsSubtype((PyTypeObject *)kind, &PyTuple_Type) || !is_begun(type, begun)) {
        return PyErr_Format(PyExc_TypeError, "marks are tuples, and their fingerprints begin with a Begun");
    }
    Marking *self = (Marking *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->kind = (PyTypeObject *)Py_NewRef(kind);
        self->places = Py_NewRef(places);
        self->begun = Py_NewRef(begun);
        self->version = Py_NewRef(version);
        self->before = Py_NewRef(before);
        self->behind = Py_NewRef(behind);
        self->terms = Py_NewRef(terms);
    }
    return (PyObject *)self;
}

static int marking_traverse(PyObject *object, visitproc visit, void *arg)
{
    Marking *self = (Marking *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->kind);
    Py_VISIT(self->places);
    Py_VISIT(self->begun);
    Py_VISIT(self->terms);
    return 0;
}

static void marking_dealloc(PyObject *object)
{
    Marking *self = (Marking *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->kind);
    Py_XDECREF(self->places);
    Py_XDECREF(self->begun);
    Py_XDECREF(self->version);
    Py_XDECREF(self->before);
    Py_XDECREF(self->behind);
    Py_XDECREF(self->terms);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef marking_methods[] = {
    {"of", (PyCFunction)(void (*)(void))marking_of, METH_FASTCALL, "Make marks, or None where it is not that simple."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot marking_slots[] = {
    {Py_tp_new, marking_new},
    {Py_tp_traverse, marking_traverse},
    {Py_tp_dealloc, marking_dealloc},
    {Py_tp_methods, marking_methods},
    {Py_tp_doc, "What the marks of one operation are made with."},
    {0, NULL},
};

PyType_Spec marking_spec = {
    .name = "nebis.core._native.Marking",
    .basicsize = sizeof(Marking),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = marking_slots,
};
