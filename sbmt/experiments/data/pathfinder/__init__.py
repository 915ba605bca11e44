"""Pathfinder: are two discs joined by a chain of paddles?"""
