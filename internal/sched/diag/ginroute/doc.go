// Package ginroute takes the endpoints of plugins that were written for Koordinator's extension interface (seed 003),
// which hands each plugin a *gin.RouterGroup. It is the only package that imports gin.
package ginroute
