/* A column of a batch, packed as a server reads an array: `nebis.stores.sql.postgres.arrays.plain_array`. */

#include "native.h"
#include <string.h>

enum { HEADER = 20, SIZE = 4, UUID_BYTES = 16 };

static void put_number(unsigned char *place, uint64_t number, int bytes)
{
    for (int byte = bytes - 1; byte >= 0; byte--) {
        place[byte] = (unsigned char)number;
        number >>= 8;
    }
}

static int uuid_bytes(PyObject *number, unsigned char *place)
{
#if PY_VERSION_HEX >= 0x030D0000
    int how = Py_ASNATIVEBYTES_BIG_ENDIAN | Py_ASNATIVEBYTES_UNSIGNED_BUFFER | Py_ASNATIVEBYTES_REJECT_NEGATIVE;
    Py_ssize_t needed = PyLong_AsNativeBytes(number, place, UUID_BYTES, how);
    return needed >= 0 && needed <= UUID_BYTES;
#else
    return _PyLong_AsByteArray((PyLongObject *)number, place, UUID_BYTES, 0, 0) == 0;
#endif
}

/* How many bytes an element has; -1 for one that is not of its kind, or is text that has to be encoded. */
static Py_ssize_t size_of(int letter, PyTypeObject *kind, PyObject *value)
{
    if (!Py_IS_TYPE(value, kind)) {
        return -1;
    }
    switch (letter) {
    case 'b':
        return PyBytes_GET_SIZE(value);
    case 't':
        return PyUnicode_IS_COMPACT_ASCII(value) ? PyUnicode_GET_LENGTH(value) : -1;
    case 'u':
        return UUID_BYTES;
    case 'q':
        return 8;
    case 'i':
        return 4;
    case 'h':
        return 2;
    default:
        return -1;
    }
}

/* Returns 0 for a number that does not fit. */
static int put_element(int letter, PyObject *value, unsigned char *place, Py_ssize_t size, PyObject *bits)
{
    if (letter == 'b') {
        memcpy(place, PyBytes_AS_STRING(value), (size_t)size);
        return 1;
    }
    if (letter == 't') {
        memcpy(place, PyUnicode_1BYTE_DATA(value), (size_t)size);
        return 1;
    }
    if (letter == 'u') {
        PyObject *number = PyObject_GetAttr(value, bits);
        int fits = number != NULL && PyLong_CheckExact(number) && uuid_bytes(number, place);
        Py_XDECREF(number);
        return fits;
    }
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    long long limit = size == 8 ? INT64_MAX : ((long long)1 << (8 * size - 1)) - 1;
    if (overflow || number > limit || number < -limit - 1) {
        return 0;
    }
    put_number(place, (uint64_t)number, (int)size);
    return 1;
}

/* Returns NULL without an error for whatever is unusual. */
static PyObject *packed(int letter, long oid, PyTypeObject *kind, PyObject *values, PyObject *bits)
{
    Py_ssize_t count = PyList_GET_SIZE(values), room = HEADER;
    for (Py_ssize_t number = 0; number < count; number++) {
        Py_ssize_t size = size_of(letter, kind, PyList_GET_ITEM(values, number));
        if (size < 0 || size > INT32_MAX || room > INT32_MAX - SIZE - size) {
            return NULL;
        }
        room += SIZE + size;
    }
    PyObject *array = PyBytes_FromStringAndSize(NULL, room);
    if (array == NULL) {
        PyErr_Clear();
        return NULL;
    }
    unsigned char *place = (unsigned char *)PyBytes_AS_STRING(array);
    const uint32_t header[] = {1, 0, (uint32_t)oid, (uint32_t)count, 1};
    for (size_t word = 0; word < sizeof header / sizeof *header; word++, place += SIZE) {
        put_number(place, header[word], SIZE);
    }
    for (Py_ssize_t number = 0; number < count; number++) {
        PyObject *value = PyList_GET_ITEM(values, number);
        Py_ssize_t size = size_of(letter, kind, value);
        put_number(place, (uint64_t)size, SIZE);
        if (!put_element(letter, value, place + SIZE, size, bits)) {
            PyErr_Clear();
            Py_DECREF(array);
            return NULL;
        }
        place += SIZE + size;
    }
    return array;
}

PyObject *plain_array(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count == 6 && PyUnicode_CheckExact(args[1]) && PyUnicode_GET_LENGTH(args[1]) == 1 && PyLong_CheckExact(args[2])
        && PyType_Check(args[3]) && PyUnicode_CheckExact(args[4]) && PyList_CheckExact(args[5])
        && PyList_GET_SIZE(args[5]) > 0) {
        int letter = (int)PyUnicode_READ_CHAR(args[1], 0);
        long oid = PyLong_AsLong(args[2]);
        if (oid >= 0 && oid <= INT32_MAX) {
            PyObject *array = packed(letter, oid, (PyTypeObject *)args[3], args[5], args[4]);
            if (array != NULL) {
                return array;
            }
        }
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}
