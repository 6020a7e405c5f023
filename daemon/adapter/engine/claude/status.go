package claude

// HTTP status codes by which the API says what is wrong (RFC 9110). Package
// net/http has them, too, and would come along into every proxy.
const (
	statusUnauthorized = 401
	statusForbidden    = 403
	statusTimeout      = 408
	statusTooLarge     = 413
	statusTooMany      = 429
	statusServerError  = 500
)
